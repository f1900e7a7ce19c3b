#include <boost/json.hpp>
#include <deque>

#include "services/cli/text.h"
#include "services/cli/transfer.h"

namespace space::cli {
namespace {

// What was copied so far, and what could not be: a copy that left something out never ends with 0.
struct Tally {
  std::uint64_t files = 0;
  std::uint64_t folders = 0;
  std::uint64_t symlinks = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> skipped;

  void skip(Context& context, const std::string& path, std::string_view why) {
    context.terminal.err("space: not copied: " + printable(path) + ": " + std::string(why) + "\n");
    skipped.push_back(path);
  }
};

int finish(Context& context, const Tally& tally, const std::string& target,
           const std::string& sandbox) {
  if (context.json) {
    boost::json::array skipped;
    for (const auto& path : tally.skipped) skipped.emplace_back(path);
    boost::json::object document{{"copied", target},           {"sandbox", sandbox},
                                 {"files", tally.files},       {"folders", tally.folders},
                                 {"symlinks", tally.symlinks}, {"bytes", tally.bytes},
                                 {"skipped", skipped}};
    const int code = print_json(context, document);
    if (code != kOk) return code;
  } else {
    context.terminal.err(std::to_string(tally.files) + " files, " + std::to_string(tally.folders) +
                         " folders, " + std::to_string(tally.bytes) + " bytes copied to " +
                         printable(target) + "\n");
  }
  return tally.skipped.empty() ? kOk : kFailed;
}

std::string joined(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

// There already is a success.
Task<Outcome<void>> make_remote_folder(Context& context, std::string sandbox, std::string path,
                                       std::string user) {
  auto made =
      co_await call(context, "POST", path_target(sandbox, "/directories", path, user), nullptr);
  if (!made && made.error().code != "already_exists") {
    co_return std::unexpected(of_file(std::move(made).error(), path));
  }
  co_return Outcome<void>{};
}

// A name that a sandbox gave: one component of a path and nothing else.
bool is_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

Task<int> upload_folder(Context& context, std::string local, std::string sandbox, std::string path,
                        std::string user) {
  const auto entries = context.files.walk(local);
  if (!entries) co_return report(context, local_failure(local, entries.error()));
  // As `cp -r` does: into a folder that is there, else under the name given.
  auto root = path.empty() ? std::string(".") : path;
  auto stat =
      co_await call(context, "GET", path_target(sandbox, "/files/stat", root, user), nullptr);
  if (stat && text_of(stat->body, "type") == "directory") root = joined(root, base_name(local));
  if (!stat && stat.error().code != "not_found") {
    co_return report(context, of_file(stat.error(), root));
  }
  auto made = co_await make_remote_folder(context, sandbox, root, user);
  if (!made) co_return report(context, made.error());
  Tally tally;
  ++tally.folders;
  for (const auto& entry : *entries) {
    const auto target = joined(root, entry.path);
    switch (entry.type) {
      case LocalType::kFolder: {
        made = co_await make_remote_folder(context, sandbox, target, user);
        if (!made) co_return report(context, made.error());
        ++tally.folders;
        break;
      }
      case LocalType::kFile: {
        const auto from = joined(local, entry.path);
        auto source = context.files.open(from);
        if (!source) {
          tally.skip(context, from, source.error().message());
          break;
        }
        tally.bytes += (*source)->size().value_or(0);
        auto sent = co_await send_file(context, sandbox, target, user, entry.mode, **source);
        if (!sent) co_return report(context, sent.error());
        ++tally.files;
        break;
      }
      case LocalType::kSymlink:
        tally.skip(context, entry.path, "a symlink (tar through `space exec -i` keeps them)");
        break;
      case LocalType::kOther:
        tally.skip(context, entry.path, "neither a file nor a folder");
        break;
    }
  }
  co_return finish(context, tally, root, sandbox);
}

Task<int> download_folder(Context& context, std::string sandbox, std::string path,
                          std::string local, std::string user) {
  auto sink = context.files.create_folder(local, base_name(path));
  if (!sink) co_return report(context, local_failure(local, sink.error()));
  Tally tally;
  ++tally.folders;
  struct Link {
    std::string path;
    std::string target;
  };
  std::vector<Link> links;              // made last: nothing is written through one
  std::deque<std::string> folders{""};  // below `path`, to be listed
  for (; !folders.empty(); folders.pop_front()) {
    const auto folder = folders.front();
    const auto remote = joined(path, folder);
    auto listed =
        co_await call(context, "GET", path_target(sandbox, "/files/list", remote, user), nullptr);
    if (!listed) co_return report(context, of_file(listed.error(), remote));
    const auto& truncated = member(listed->body, "truncated");
    if (truncated.is_bool() && truncated.get_bool()) {
      co_return report(context, Failure{.exit_code = kFailed,
                                        .code = "too_large",
                                        .message = printable(remote) +
                                                   ": more entries than one answer holds; use tar "
                                                   "through `space exec`"});
    }
    const auto& entries = member(listed->body, "entries");
    if (!entries.is_array()) continue;
    for (const auto& entry : entries.get_array()) {
      const auto name = text_of(entry, "name");
      const auto type = text_of(entry, "type");
      const auto below = joined(folder, name);
      if (!is_component(name)) {
        tally.skip(context, joined(remote, name), "no name for a file here");
      } else if (type == "directory") {
        const auto made = (*sink)->make_folder(below);
        if (!made) co_return report(context, local_failure(below, made.error()));
        ++tally.folders;
        folders.push_back(below);
      } else if (type == "file") {
        const auto& mode = member(entry, "mode");
        auto file = (*sink)->create(
            below, mode.is_int64() ? static_cast<std::uint32_t>(mode.get_int64()) & 0777U : 0644U);
        if (!file) co_return report(context, local_failure(below, file.error()));
        auto fetched =
            co_await fetch_file(context, sandbox, joined(path, below), user, **file, below);
        if (!fetched) co_return report(context, fetched.error());
        tally.bytes += fetched->bytes;
        ++tally.files;
      } else if (type == "symlink") {
        links.push_back({below, text_of(entry, "symlink_target")});
      } else {
        tally.skip(context, below, "neither a file nor a folder");
      }
    }
  }
  for (const auto& link : links) {
    const auto made = (*sink)->make_symlink(link.path, link.target);
    if (!made) co_return report(context, local_failure(link.path, made.error()));
    ++tally.symlinks;
  }
  co_return finish(context, tally, local, sandbox);
}

}  // namespace space::cli
