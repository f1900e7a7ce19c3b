#include "adapters/templates/recipe.h"

#include <sstream>

#include "adapters/supervisor/lock_file.h"
#include "adapters/templates/apt_sources.h"
#include "base/text.h"
#include "core/identity/sha256.h"

namespace space::templates {
namespace {

#if defined(__x86_64__)
constexpr const char* kArch = "amd64";
#elif defined(__aarch64__)
constexpr const char* kArch = "arm64";
#else
#error "name this architecture as Debian does"
#endif

// What mmdebstrap leaves of this machine (its names, its settings of apt) is replaced. The agent is
// mounted on .space/spaced-guest, and /etc/hosts and /etc/hostname are each sandbox's own.
constexpr const char* kBaseScript = R"(set -eu
root=$1
chroot "$root" useradd --create-home --user-group --uid 1000 --groups sudo --shell /bin/bash user
printf 'user ALL=(ALL:ALL) NOPASSWD: ALL\n' >"$root/etc/sudoers.d/user"
chmod 0440 "$root/etc/sudoers.d/user"
printf 'sandbox\n' >"$root/etc/hostname"
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
printf 'options timeout:1 attempts:1\n' >"$root/etc/resolv.conf"
ln -sf /proc/self/mounts "$root/etc/mtab"
mkdir -m 0755 "$root/.space"
: >"$root/.space/spaced-guest"
chmod 0755 "$root/.space/spaced-guest"
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
sed 's/^deb \[[^]]*\]/deb/' "$root"/etc/apt/sources.list.d/*.list >"$root/etc/apt/sources.list"
rm -f "$root"/etc/apt/sources.list.d/*.list
rm -rf "$root"/var/cache/debconf/*-old "$root"/var/cache/ldconfig "$root"/var/lib/dpkg/*-old
find "$root/var/log" -type f -delete
)";

// The value of KEY= in os-release text, quotes removed.
std::string os_release_value(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key + "=")) continue;
    auto value = line.substr(key.size() + 1);
    std::erase(value, '"');
    return value;
  }
  return "";
}

}  // namespace

std::string Recipe::text() const {
  std::string out = "space template recipe 1\n";
  // Lengths first: no content can look like another field.
  const auto add = [&out](const char* key, const std::string& value) {
    out += std::string(key) + " " + std::to_string(value.size()) + "\n" + value + "\n";
  };
  add("name", name);
  add("arch", arch);
  add("suite", suite);
  add("sources", sources);
  for (const auto& package : packages) add("package", package);
  add("script", script);
  return out;
}

TemplateRef Recipe::ref() const { return {name, to_hex(identity::sha256(as_bytes(text())))}; }

Recipe base_recipe(std::string arch, std::string suite, std::string sources) {
  return {
      "base",
      std::move(arch),
      std::move(suite),
      std::move(sources),
      {"bash", "ca-certificates", "curl", "git", "netbase", "passwd", "procps", "python3", "sudo"},
      kBaseScript};
}

TemplateResult<Recipe> recipe_of(std::string_view name, const std::filesystem::path& etc) {
  if (name != "base") {
    return failure(TemplateError::kNoSuchTemplate,
                   "no recipe for '" + std::string(name) + "'; the one there is: base");
  }
  const auto release = supervisor::read_small_file(etc / "os-release").value_or("");
  auto suite = os_release_value(release, "VERSION_CODENAME");
  if (suite.empty()) {
    return failure(TemplateError::kUnavailable, (etc / "os-release").string() +
                                                    " names no VERSION_CODENAME; templates are "
                                                    "built from Debian's archives");
  }
  auto sources = machine_sources(etc / "apt", suite);
  if (sources.empty()) {
    return failure(TemplateError::kUnavailable,
                   "no source of the suite " + suite + " with the component main in " +
                       (etc / "apt").string() + "; add `deb http://deb.debian.org/debian " + suite +
                       " main` to sources.list");
  }
  return base_recipe(kArch, std::move(suite), std::move(sources));
}

}  // namespace space::templates
