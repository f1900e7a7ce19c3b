#include "logs.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "machine.h"
#include "services/cli/text.h"

namespace space::app {
namespace {

namespace fs = std::filesystem;

constexpr auto kFollowPause = std::chrono::milliseconds(200);
constexpr std::array<std::string_view, 5> kLevels{"debug", "info", "warning", "error", "alarm"};

std::optional<std::size_t> level_rank(std::string_view name) {
  const auto at = std::ranges::find(kLevels, name);
  if (at == kLevels.end()) return std::nullopt;
  return static_cast<std::size_t>(at - kLevels.begin());
}

struct Event {
  std::string time;
  std::string line;  // as it is in the file
  boost::json::object fields;
};

// One part's file, read on from where the last reading stopped.
class LogFile {
 public:
  explicit LogFile(fs::path path) : path_(std::move(path)) {}
  const fs::path& path() const { return path_; }

  // The whole lines that came since the last call. A line that is no event is passed over: a crash
  // may have cut it.
  std::vector<Event> read() {
    std::vector<Event> events;
    std::ifstream file(path_, std::ios::binary);
    file.seekg(at_);
    std::string line;
    while (std::getline(file, line) && !file.eof()) {
      at_ += static_cast<std::streamoff>(line.size()) + 1;
      boost::system::error_code error;
      auto value = boost::json::parse(line, error);
      if (error || !value.is_object()) continue;
      Event event{cli::text_of(value, "time"), line, std::move(value.get_object())};
      events.push_back(std::move(event));
    }
    return events;
  }

 private:
  fs::path path_;
  std::streamoff at_ = 0;
};

bool wanted(const LogsOptions& options, std::size_t least, const Event& event) {
  const boost::json::value value(event.fields);
  const auto rank = level_rank(cli::text_of(value, "level"));
  return rank.value_or(kLevels.size()) >= least &&
         cli::text_of(value, "part").starts_with(options.part) &&
         (options.sandbox.empty() || cli::text_of(value, "sandbox") == options.sandbox);
}

// "TIME LEVEL PART EVENT name=value ...".
std::string rendered(const Event& event) {
  const boost::json::value value(event.fields);
  std::string text = cli::shown(value, "time") + "  " + cli::shown(value, "level") + "  " +
                     cli::shown(value, "part") + "  " + cli::shown(value, "event");
  for (const auto& field : event.fields) {
    const auto key = field.key();
    if (key == "time" || key == "level" || key == "part" || key == "event") continue;
    text += "  " + cli::printable(key) + "=" + cli::shown(value, key);
  }
  return text;
}

// Parts that were started since are found too.
void find_files(const fs::path& folder, std::vector<LogFile>& files) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (at->path().extension() != ".log") continue;
    if (std::ranges::find(files, at->path(), &LogFile::path) == files.end()) {
      files.emplace_back(at->path());
    }
  }
}

}  // namespace

Task<int> logs(cli::Context& context, LogsOptions options) {
  const auto least = level_rank(options.level.empty() ? "info" : options.level);
  const auto config = config::load(config_file());
  if (!config) {
    co_return cli::report(context, cli::Failure{.exit_code = cli::kFailed,
                                                .code = "no_platform",
                                                .message = config.error().message});
  }
  std::vector<LogFile> files;
  std::deque<Event> events;
  for (bool first = true;; first = false) {
    find_files(config->logs(), files);
    for (auto& file : files) {
      std::deque<Event> kept;
      for (auto& event : file.read()) {
        if (!wanted(options, *least, event)) continue;
        kept.push_back(std::move(event));
        if (first && kept.size() > options.lines) kept.pop_front();
      }
      std::ranges::move(kept, std::back_inserter(events));
    }
    std::ranges::sort(events, {}, &Event::time);
    while (first && events.size() > options.lines) events.pop_front();
    for (; !events.empty(); events.pop_front()) {
      const auto line = context.json ? events.front().line : rendered(events.front());
      if (!context.terminal.out(line + "\n")) co_return cli::kOk;  // the reader has enough
    }
    if (!options.follow) co_return cli::kOk;
    if (!co_await sleep_for(context.timer, kFollowPause)) co_return cli::kFailed;
  }
}

}  // namespace space::app
