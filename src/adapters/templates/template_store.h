#pragma once
#include <cstdint>
#include <expected>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What sandboxes are made of: root folders, each made once from a recipe and never changed.
namespace space::templates {

enum class TemplateError : std::uint8_t {
  kNoSuchTemplate,
  kInUse,        // a sandbox is made of it
  kUnavailable,  // this machine cannot build it now; the message says what to do
  kFailed,
};
struct TemplateFailure {
  TemplateError error = TemplateError::kFailed;
  std::string message;
};
template <class T>
using TemplateResult = std::expected<T, TemplateFailure>;
std::unexpected<TemplateFailure> failure(TemplateError error, std::string message);

// 1..40 of a-z, 0-9 and '-', the first one no dash. Everything that becomes a path passes this.
bool valid_name(std::string_view name);

// One build of a template: its name and the SHA-256 of its recipe as 64 lower-case hexadecimal
// digits.
struct TemplateRef {
  std::string name;
  std::string hash;
  std::string text() const { return name + "@" + hash; }
  static std::optional<TemplateRef> parse(std::string_view text);
  friend bool operator==(const TemplateRef&, const TemplateRef&) = default;
};

// What is known about one, kept beside its root folder.
struct TemplateInfo {
  TemplateRef ref;
  std::string suite;
  std::string arch;
  std::vector<std::string> packages;  // asked for; what they need is there too
  std::string built_at;               // RFC 3339, UTC
  std::uint64_t size_bytes = 0;       // on disk
};

// The folder of all templates: NAME@HASH/{root/, manifest.json}, only root may pass. A template
// appears whole, by one rename; what a crash left behind is removed by the next build or removal.
// Changes are made by one process at a time, under the lock file `.lock`.
class TemplateStore {
 public:
  explicit TemplateStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The build of `name` that was made, or asked for again, last. Reads one folder: fit for every
  // start.
  std::optional<TemplateRef> newest(std::string_view name) const;
  bool has(const TemplateRef& ref) const;
  std::filesystem::path root(const TemplateRef& ref) const { return path(ref) / "root"; }
  // By name, the newest of a name first.
  TemplateResult<std::vector<TemplateInfo>> list() const;

  // Fills the empty folder it is given with root/, and nothing else.
  using Maker = std::function<TemplateResult<void>(const std::filesystem::path& work)>;
  // Makes `info.ref` (built_at and size_bytes are set here) unless it is there; true when it was
  // made now. Either way it is the newest of its name then. `waiting` is called when another
  // process builds; after half an hour of that: kUnavailable.
  TemplateResult<bool> build(TemplateInfo info, const Maker& make,
                             const std::function<void()>& waiting);

  // Who is made of it, for people. Asked while nobody can start from it any more.
  using Users = std::function<std::vector<std::string>(const TemplateRef&)>;
  TemplateResult<void> remove(const TemplateRef& ref, const Users& users);

 private:
  std::filesystem::path path(const TemplateRef& ref) const { return folder_ / ref.text(); }
  // Makes it the newest of its name; false when it is not there.
  bool renew(const TemplateRef& ref) const;
  TemplateResult<void> sweep() const;
  TemplateResult<void> publish(const std::filesystem::path& work, TemplateInfo info) const;

  std::filesystem::path folder_;
};

}  // namespace space::templates
