#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace space::templates {

// One place of binary packages that apt is configured with.
struct AptSource {
  std::string uri;
  std::string suite;
  std::vector<std::string> components;
  std::string signed_by;  // a key file, or a fingerprint; empty: apt's own keys
  bool trusted = false;   // unsigned is fine, says this machine
  friend bool operator==(const AptSource&, const AptSource&) = default;
};

// The enabled sources of binary packages in a file of either format of sources.list(5). Lines and
// stanzas that are no source are skipped; so is a key that is written out in the file.
std::vector<AptSource> parse_one_line_sources(std::string_view text);
std::vector<AptSource> parse_deb822_sources(std::string_view text);

// Lines for sources.list: what `folder` (/etc/apt) configures of component main for the suite
// `codename`, its updates and its security fixes, as apt orders the files. Other sources, such as a
// vendor's, are left out. Empty without a source of `codename` itself.
std::string machine_sources(const std::filesystem::path& folder, const std::string& codename);

}  // namespace space::templates
