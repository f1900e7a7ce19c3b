#include "adapters/records/file_record_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/result.h"
#include "core/identity/sha256.h"

namespace space::records {
namespace net = boost::asio;
namespace {

constexpr std::string_view kRecordMagic = "SPACEREC";
constexpr std::string_view kBundleMagic = "SPACEBUN";
constexpr std::string_view kBundleName = "bundle.version";
constexpr std::string_view kTemporary = ".new";  // suffix; left by a crash
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMaxFileBytes = 64 * 1024;

std::unexpected<std::error_code> last_error() {
  return std::unexpected(std::error_code(errno, std::generic_category()));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Content that holds a secret: wiped at the end.
struct Wiped {
  Bytes bytes;
  explicit Wiped(Bytes b) : bytes(std::move(b)) {}
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
  ~Wiped() { ::explicit_bzero(bytes.data(), bytes.size()); }
};

struct Entry {
  identity::Generation floor;
  std::optional<StoredRecord> stored;
};

void seal(ByteWriter& out) { out.raw(identity::sha256(out.view())); }

// The content before the checksum, if that is right.
std::optional<ByteView> unseal(ByteView bytes) {
  if (bytes.size() < identity::kSha256Bytes) return std::nullopt;
  const auto content = bytes.first(bytes.size() - identity::kSha256Bytes);
  if (!equal(identity::sha256(content), bytes.last(identity::kSha256Bytes))) return std::nullopt;
  return content;
}

Bytes encode(identity::Generation floor, const StoredRecord* stored) {
  ByteWriter out;
  out.raw(as_bytes(kRecordMagic));
  out.u8(kVersion);
  out.u64(floor.value);
  out.u8(stored != nullptr ? 1 : 0);
  if (stored != nullptr) {
    out.bytes32(identity::encode_record(stored->record));
    out.raw(stored->secret.reveal());
    out.text8(stored->boot_id);
  }
  seal(out);
  return out.take();
}

std::optional<Entry> decode(ByteView bytes) {
  const auto content = unseal(bytes);
  if (!content) return std::nullopt;
  ByteReader in(*content);
  if (as_text(in.raw(kRecordMagic.size())) != kRecordMagic || in.u8() != kVersion) {
    return std::nullopt;
  }
  Entry entry;
  entry.floor = {in.u64()};
  const auto flag = in.u8();
  if (flag > 1) return std::nullopt;
  if (flag == 1) {
    auto record = identity::decode_record(in.bytes32());
    const auto secret = in.raw(32);
    auto boot_id = std::string(in.text8());
    if (!record || secret.size() != 32) return std::nullopt;
    entry.stored =
        StoredRecord{*std::move(record), GuestSecret(secret.first<32>()), std::move(boot_id)};
  }
  if (!in.complete()) return std::nullopt;
  return entry;
}

// nullopt: no such file.
IoResult<std::optional<Bytes>> read_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    return last_error();
  }
  Bytes content(kMaxFileBytes + 1);
  std::size_t size = 0;
  while (size < content.size()) {
    const auto count = ::read(file.get(), content.data() + size, content.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return last_error();
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size > kMaxFileBytes) return io_error(std::errc::bad_message);
  content.resize(size);
  return content;
}

IoResult<std::optional<Entry>> read_entry(const std::string& path) {
  SPACE_TRY(auto content, read_file(path));
  if (!content) return std::nullopt;
  const Wiped bytes(*std::move(content));
  auto entry = decode(bytes.bytes);
  if (!entry) return io_error(std::errc::bad_message);
  return entry;
}

IoResult<RecordStore::Contents> load(const std::string& folder_path) {
  if (::mkdir(folder_path.c_str(), 0700) != 0 && errno != EEXIST) return last_error();
  const std::unique_ptr<DIR, decltype([](DIR* d) { ::closedir(d); })> folder(
      ::opendir(folder_path.c_str()));
  if (!folder) return last_error();
  RecordStore::Contents contents;
  while (const auto* item = ::readdir(folder.get())) {
    const std::string name = item->d_name;
    const auto path = folder_path + "/" + name;
    if (name == "." || name == "..") continue;
    if (name.ends_with(kTemporary)) {
      ::unlink(path.c_str());
      continue;
    }
    if (name == kBundleName) {
      SPACE_TRY(const auto content, read_file(path));
      const auto bytes = content ? unseal(*content) : std::nullopt;
      if (!bytes) return io_error(std::errc::bad_message);
      ByteReader in(*bytes);
      const bool ours = as_text(in.raw(kBundleMagic.size())) == kBundleMagic && in.u8() == kVersion;
      contents.bundle = {in.u64()};
      if (!ours || !in.complete()) return io_error(std::errc::bad_message);
      continue;
    }
    const auto sandbox = identity::SandboxId::parse(name);
    if (!sandbox) return io_error(std::errc::bad_message);
    SPACE_TRY(auto entry, read_entry(path));
    if (!entry || (entry->stored && entry->stored->record.route.sandbox != *sandbox)) {
      return io_error(std::errc::bad_message);
    }
    contents.floors[*sandbox] = entry->floor;
    if (entry->stored) contents.records.push_back(*std::move(entry->stored));
  }
  return contents;
}

IoResult<void> replace(const std::string& folder_path, const std::string& name, Bytes content) {
  const Wiped bytes(std::move(content));
  const Descriptor folder(::open(folder_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return last_error();
  const auto temporary = name + std::string(kTemporary);
  const Descriptor file(::openat(folder.get(), temporary.c_str(),
                                 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return last_error();
  for (ByteView rest = bytes.bytes; !rest.empty();) {
    const auto count = ::write(file.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return last_error();
    rest = rest.subspan(static_cast<std::size_t>(count));
  }
  if (::fsync(file.get()) != 0 ||
      ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0 ||
      ::fsync(folder.get()) != 0) {
    return last_error();
  }
  return {};
}

IoResult<std::optional<identity::RuntimeRecord>> read_record(const std::string& path) {
  SPACE_TRY(auto entry, read_entry(path));
  if (!entry || !entry->stored) return std::nullopt;
  return std::move(entry->stored->record);
}

template <class Work>
auto run(Work work) -> Task<decltype(work())> {
  co_return work();
}
// On the worker thread; the caller goes on in its own loop.
template <class Work>
auto on(net::thread_pool& worker, Work work) -> Task<decltype(work())> {
  co_return co_await net::co_spawn(
      worker, run(std::move(work)),
      net::bind_cancellation_slot(net::cancellation_slot(), net::use_awaitable));
}

}  // namespace

Task<IoResult<RecordStore::Contents>> FileRecordStore::load_all() {
  return on(worker_, [folder = folder_] { return load(folder); });
}

Task<IoResult<void>> FileRecordStore::put(StoredRecord stored) {
  auto name = stored.record.route.sandbox.text();
  auto content = encode(stored.record.route.generation, &stored);
  return on(worker_,
            [folder = folder_, name = std::move(name), content = std::move(content)]() mutable {
              return replace(folder, name, std::move(content));
            });
}

Task<IoResult<std::optional<identity::RuntimeRecord>>> FileRecordStore::read(
    identity::SandboxId sandbox) {
  return on(worker_, [path = folder_ + "/" + sandbox.text()] { return read_record(path); });
}

Task<IoResult<void>> FileRecordStore::erase(identity::SandboxId sandbox,
                                            identity::Generation floor) {
  auto content = encode(floor, nullptr);
  return on(worker_,
            [folder = folder_, name = sandbox.text(), content = std::move(content)]() mutable {
              return replace(folder, name, std::move(content));
            });
}

Task<IoResult<void>> FileRecordStore::put_bundle_version(identity::BundleVersion version) {
  ByteWriter out;
  out.raw(as_bytes(kBundleMagic));
  out.u8(kVersion);
  out.u64(version.value);
  seal(out);
  return on(worker_, [folder = folder_, content = out.take()]() mutable {
    return replace(folder, std::string(kBundleName), std::move(content));
  });
}

}  // namespace space::records
