#pragma once
#include <functional>
#include <string>

#include "services/cli/api.h"

// The moving of one file's content, for the commands that copy.
namespace space::cli {

inline constexpr std::size_t kTransferChunk = 256U << 10;

// Target of a route about the path `path` in a sandbox; `route` like "/files" or "/files/stat".
std::string path_target(std::string_view sandbox, std::string_view route, std::string_view path,
                        std::string_view user);
// `failure` with the path it is about in its message.
Failure of_file(Failure failure, const std::string& path);
Failure local_failure(const std::string& path, std::error_code error);

// Hands the whole content of a sandbox's file to `take`, which answers false to stop. The headers
// of the answer. An answer that breaks off is a failure: never a shorter file.
Task<Outcome<HttpHeaders>> fetch_content(Context& context, std::string sandbox, std::string path,
                                         std::string user, std::function<bool(ByteView)> take);
// The same into a local file, which appears only when its content is whole.
struct Fetched {
  HttpHeaders headers;
  std::uint64_t bytes = 0;
};
Task<Outcome<Fetched>> fetch_file(Context& context, std::string sandbox, std::string path,
                                  std::string user, FileSink& sink, std::string local);
// Writes a sandbox's file, whole or not at all. `mode`: its permission bits, nullopt as the API
// chooses. `source` outlives the task. The headers of the answer.
Task<Outcome<HttpHeaders>> send_file(Context& context, std::string sandbox, std::string path,
                                     std::string user, std::optional<std::uint32_t> mode,
                                     HttpBodySource& source);

// Copies a folder with everything in it (folders.cc). `into`: what a place that is a folder already
// gets inside it.
Task<int> upload_folder(Context& context, std::string local, std::string sandbox, std::string path,
                        std::string user);
Task<int> download_folder(Context& context, std::string sandbox, std::string path,
                          std::string local, std::string user);

}  // namespace space::cli
