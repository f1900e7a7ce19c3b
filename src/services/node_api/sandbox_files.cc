// /health and /files of the sandbox API.
#include <utility>
#include <vector>

#include "core/wire/multipart.h"
#include "core/wire/path.h"
#include "services/node_api/sandbox_api.h"
#include "services/node_api/sandbox_call.h"

namespace space::node_api {

using frame::Outcome;
using policy::Operation;
using wire::MultipartReader;

namespace {

constexpr std::string_view kBytesType = "application/octet-stream";

// Reads the query of /files into `path` and `call.user`. False after it has answered the request.
Task<bool> read_query(SandboxCall& call, std::optional<std::string>& path) {
  auto pairs = wire::parse_query(call.exchange.request().query);
  if (!pairs) {
    co_await call.fail(invalid("malformed query"));
    co_return false;
  }
  for (const auto* name : {"signature", "signature_expiration"}) {
    if (!pairs->contains(name)) continue;
    co_await call.fail_with(501, "signed URLs (\"" + std::string(name) + "\") are not built yet");
    co_return false;
  }
  call.query = Query(*std::move(pairs));
  path = call.query.text("path");
  if (path && !wire::is_guest_path(*path)) {
    call.query.refuse("path", "must be 1 to 4096 bytes, no NUL");
  }
  const auto user = call.query.text("username").value_or("");
  if (user.contains(':')) call.query.refuse("username", "must not contain ':'");
  if (!user.empty() && !call.user.empty() && user != call.user) {
    call.query.refuse("username", "and Authorization name different users");
  }
  if (!user.empty()) call.user = user;
  co_return co_await call.query_accepted();
}

// What an upload asks for that is not built.
std::optional<std::string> beyond(const HttpHeaders& headers) {
  if (count_headers(headers, "content-encoding") > 0 &&
      single_header(headers, "content-encoding") != "identity") {
    return "an upload with Content-Encoding";
  }
  for (const auto& header : headers) {
    if (header.name.starts_with("x-metadata-")) return "file metadata (" + header.name + ")";
  }
  return std::nullopt;
}

Json write_info(const wire::FileEntry& entry) {
  return Json::Object{{"path", entry.path}, {"name", entry.name}, {"type", "file"}};
}

}  // namespace

Task<void> SandboxApi::health(SandboxCall& call) {
  // The guest itself answers.
  const wire::FileStatRequest request{"/", "root"};
  auto alive = co_await gateway_.call(call.caller, call.sandbox, Operation::kFileStat,
                                      wire::encode(request));
  if (alive) {
    static_cast<void>(co_await call.exchange.respond(204, {{"cache-control", "no-store"}}, {}));
  } else if (alive.error().reason == kPaused) {
    // Not running, which is 502 to the SDKs, but not gone.
    co_await call.fail_with(
        kGoneStatus, std::string(kGoneMessage) + " running: it is paused, connect resumes it");
  } else {
    co_await call.fail(std::move(alive).error());
  }
}

Task<void> SandboxApi::read_file(SandboxCall& call) {
  std::optional<std::string> path;
  if (!co_await read_query(call, path)) co_return;
  if (!path) {
    co_await call.fail(invalid("parameter \"path\" is needed"));
    co_return;
  }
  if (count_headers(call.exchange.request().headers, "range") > 0) {
    co_await call.fail_with(501, "Range is not built yet");
    co_return;
  }
  wire::FileReadRequest request;
  request.path = *std::move(path);
  request.user = call.user;
  const auto admission = co_await call.open(Operation::kFileRead, request);
  if (!admission) co_return;
  HttpHeaders content{{"content-type", std::string(kBytesType)}, {"cache-control", "no-store"}};
  co_await call.download(*admission, std::move(content));
}

Task<void> SandboxApi::write_files(SandboxCall& call) {
  const auto& headers = call.exchange.request().headers;
  std::optional<std::string> path;
  if (!co_await read_query(call, path)) co_return;
  if (const auto what = beyond(headers)) {
    co_await call.fail_with(501, *what + " is not built yet");
    co_return;
  }
  const auto type = media_type(headers);
  if (type == wire::kMultipartType) {
    auto boundary = wire::multipart_boundary(*single_header(headers, "content-type"));
    if (boundary) {
      co_await write_form(call, *std::move(boundary), std::move(path).value_or(""));
    } else {
      co_await call.fail(invalid("multipart/form-data needs exactly one legal boundary"));
    }
  } else if (type != kBytesType) {
    co_await call.fail_with(415, "Content-Type must be " + std::string(wire::kMultipartType) +
                                     " or " + std::string(kBytesType));
  } else if (!path) {
    co_await call.fail(invalid("parameter \"path\" is needed"));
  } else {
    co_await write_one(call, *std::move(path));
  }
}

Task<void> SandboxApi::write_one(SandboxCall& call, std::string path) {
  const auto& head = call.exchange.request();
  wire::FileWriteRequest request;
  request.path = std::move(path);
  request.user = call.user;
  request.size = head.has_body ? head.content_length : std::optional<std::uint64_t>(0);
  const auto entry = co_await call.upload<wire::FileEntry>(Operation::kFileWrite, request);
  if (entry) co_await call.answer(200, Json::Array{write_info(*entry)});
}

// The files of a form, one operation after the other. A file's END goes out only once the delimiter
// behind it was there, so that a cut upload leaves the old content (C058); the files before it
// stay.
Task<void> SandboxApi::write_form(SandboxCall& call, std::string boundary, std::string path) {
  const bool named = !path.empty();  // by the query: then the form has one file
  MultipartReader reader(boundary);
  std::unique_ptr<Admission> admission;  // of the file that is being written
  Json::Array done;
  wire::FileWriteRequest request;
  request.user = call.user;
  if (named) {
    request.path = std::move(path);
    admission = co_await call.open(Operation::kFileWrite, request);
    if (!admission) co_return;
  }
  std::vector<std::byte> buffer(64 * 1024);
  std::optional<std::string> problem;
  for (bool whole = false; !whole && !problem;) {
    auto event = reader.next();
    const bool finished = std::holds_alternative<MultipartReader::Finished>(event);
    if (finished || std::holds_alternative<MultipartReader::NeedMore>(event)) {
      const auto count = co_await call.exchange.read_body(buffer);
      if (!count && count.error() != std::errc::bad_message) co_return;  // the client left
      whole = count && *count == 0;
      if (!count) problem = "malformed body";
      if (whole && !finished) problem = "the form ends before its closing boundary";
      if (count) reader.feed(ByteView(buffer).first(*count));
    } else if (auto* begin = std::get_if<MultipartReader::PartBegin>(&event)) {
      if (begin->name != "file") {
        problem = "a part of the form is not called \"file\"";
      } else if (named && admission == nullptr) {
        problem = "parameter \"path\" names one file, and the form has more";
      } else if (!named) {
        request.path = begin->filename.value_or("");
        if (wire::is_guest_path(request.path)) {
          admission = co_await call.open(Operation::kFileWrite, request);
          if (!admission) co_return;
        } else {
          problem = "a part's filename must be a path: 1 to 4096 bytes, no NUL";
        }
      }
    } else if (const auto* data = std::get_if<MultipartReader::PartData>(&event)) {
      // Once the worker has ended the operation, its outcome tells why.
      if (!co_await admission->write(data->bytes)) {
        co_await call.outcome_record<wire::FileEntry>(*admission);
        co_return;
      }
    } else if (std::holds_alternative<MultipartReader::PartEnd>(event)) {
      admission->end();
      const auto entry = co_await call.outcome_record<wire::FileEntry>(*admission);
      if (!entry) co_return;
      admission.reset();
      done.push_back(write_info(*entry));
    } else {
      problem =
          "malformed form: " + std::string(std::get<MultipartReader::Malformed>(event).problem);
    }
  }
  if (!problem && done.empty()) problem = "the form has no file";
  if (problem) {
    co_await call.fail(invalid(*std::move(problem)));
  } else {
    co_await call.answer(200, std::move(done));
  }
}

}  // namespace space::node_api
