#pragma once
#include <functional>
#include <memory>

#include "core/wire/hop.h"
#include "ports/stream.h"
#include "sim/life.h"

namespace space::sim {

// Sees the frames of one hop connection at one of its ends.
class FrameObserver {
 public:
  virtual ~FrameObserver() = default;
  // In the turn in which the owner was handed the bytes.
  virtual void on_read(const wire::hop::Frame& frame) = 0;
  // In the turn in which the owner handed the bytes to the transport.
  virtual void on_written(const wire::hop::Frame& frame) = 0;
};

// A stream that shows its frames to `observer` and is dead once `life` has ended.
std::unique_ptr<Stream> tapped(std::unique_ptr<Stream> stream, LifePtr life,
                               std::shared_ptr<FrameObserver> observer);

// The same for what a listener accepts and a dialler dials; `make` gives each connection its
// observer, or null. `address` of an accepted connection is empty.
using MakeObserver = std::function<std::shared_ptr<FrameObserver>(const std::string& address)>;
std::unique_ptr<Listener> tapped(std::unique_ptr<Listener> listener, LifePtr life,
                                 MakeObserver make);
std::unique_ptr<Dialer> tapped(std::unique_ptr<Dialer> dialer, LifePtr life, MakeObserver make);

}  // namespace space::sim
