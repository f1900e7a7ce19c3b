#include "adapters/templates/apt_sources.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "adapters/supervisor/lock_file.h"

namespace space::templates {
namespace {
namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(std::move(word));
  return words;
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

bool is_yes(const std::string& value) {
  const auto text = lower(value);
  return text == "yes" || text == "true" || text == "1" || text == "on" || text == "with";
}
bool is_no(const std::string& value) {
  const auto text = lower(value);
  return text == "no" || text == "false" || text == "0" || text == "off" || text == "without";
}

// The only word of `value`; empty for none or several, such as a key that is written out.
std::string only_word(const std::string& value) {
  const auto words = words_of(value);
  return words.size() == 1 ? words[0] : "";
}

using Stanza = std::map<std::string, std::string>;  // lower-case keys

void add_stanza(const Stanza& stanza, std::vector<AptSource>& out) {
  const auto value = [&stanza](const char* key) {
    const auto at = stanza.find(key);
    return at == stanza.end() ? std::string() : at->second;
  };
  const auto types = words_of(value("types"));
  if (std::ranges::find(types, "deb") == types.end() || is_no(only_word(value("enabled")))) return;
  for (const auto& uri : words_of(value("uris"))) {
    for (const auto& suite : words_of(value("suites"))) {
      out.push_back({uri, suite, words_of(value("components")), only_word(value("signed-by")),
                     is_yes(only_word(value("trusted")))});
    }
  }
}

}  // namespace

std::vector<AptSource> parse_one_line_sources(std::string_view text) {
  std::vector<AptSource> sources;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    std::string options;
    const auto open = line.find('[');
    const auto close = line.find(']');
    if (open != std::string::npos && close != std::string::npos && open < close) {
      options = line.substr(open + 1, close - open - 1);
      line.erase(open, close - open + 1);
    }
    const auto words = words_of(line);
    if (words.size() < 3 || words[0] != "deb") continue;
    AptSource source{words[1], words[2], {words.begin() + 3, words.end()}, {}, false};
    for (const auto& option : words_of(options)) {
      const auto key = lower(option.substr(0, option.find('=')));
      const auto value = option.substr(std::min(option.size(), key.size() + 1));
      if (key == "signed-by") source.signed_by = value;
      if (key == "trusted") source.trusted = is_yes(value);
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

std::vector<AptSource> parse_deb822_sources(std::string_view text) {
  std::vector<AptSource> sources;
  std::istringstream lines{std::string(text)};
  Stanza stanza;
  std::string key;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      add_stanza(stanza, sources);
      stanza.clear();
    } else if (line[0] == ' ' || line[0] == '\t') {
      stanza[key] += line;
    } else if (const auto colon = line.find(':'); colon != std::string::npos) {
      key = lower(line.substr(0, colon));
      stanza[key] = line.substr(colon + 1);
    }
  }
  add_stanza(stanza, sources);
  return sources;
}

std::string machine_sources(const fs::path& folder, const std::string& codename) {
  std::vector<fs::path> files{folder / "sources.list"};
  std::vector<fs::path> parts;
  std::error_code error;
  for (fs::directory_iterator at(folder / "sources.list.d", error), end; !error && at != end;
       at.increment(error)) {
    parts.push_back(at->path());
  }
  std::ranges::sort(parts);
  files.insert(files.end(), parts.begin(), parts.end());

  bool has_suite = false;
  std::string lines;
  for (const auto& file : files) {
    const bool deb822 = file.extension() == ".sources";
    if (!deb822 && file.extension() != ".list") continue;
    const auto text = supervisor::read_small_file(file).value_or("");
    for (const auto& source : deb822 ? parse_deb822_sources(text) : parse_one_line_sources(text)) {
      const auto& suite = source.suite;
      if ((suite != codename && suite != codename + "-updates" && suite != codename + "-security" &&
           suite != codename + "/updates") ||
          std::ranges::find(source.components, "main") == source.components.end()) {
        continue;
      }
      has_suite = has_suite || suite == codename;
      std::string options;
      if (!source.signed_by.empty()) options += "signed-by=" + source.signed_by;
      if (source.trusted) options += std::string(options.empty() ? "" : " ") + "trusted=yes";
      const auto line = "deb " + (options.empty() ? "" : "[" + options + "] ") + source.uri + " " +
                        suite + " main\n";
      if (lines.find(line) == std::string::npos) lines += line;
    }
  }
  return has_suite ? lines : "";
}

}  // namespace space::templates
