// space-load: the one load generator of the benchmarks. Sends the same HTTP/1.1 request over N
// kept-open connections, each sending its next request when the answer to the last one was
// checked, and prints one JSON object. Any answer that is not the expected one ends the run.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <expected>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kMaxAnswerBytes = 8U << 20;
constexpr std::size_t kMaxSamples = 32U << 20;  // latencies kept; the run ends when it is reached
constexpr std::size_t kReadBytes = 64U << 10;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "space-load: %s\n", what.c_str());
  std::exit(1);
}
[[noreturn]] void fail_errno(const std::string& what) { fail(what + ": " + std::strerror(errno)); }

std::uint64_t nanoseconds(clockid_t clock) {
  timespec now{};
  if (::clock_gettime(clock, &now) != 0) fail_errno("clock");
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::optional<std::uint64_t> number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Checks one answer against the expected body.
class AnswerCheck {
 public:
  explicit AnswerCheck(std::string body) : body_(std::move(body)) {}

  // The size of the whole answer at the front of `data`; 0 while it is not all there. The error
  // says what is wrong with it.
  std::expected<std::size_t, std::string> check(std::string_view data) const {
    const auto end = data.find("\r\n\r\n");
    if (end == std::string_view::npos) return incomplete(data);
    if (!data.starts_with("HTTP/1.1 200 ")) {
      return std::unexpected("not a 200: " + std::string(data.substr(0, 400)));
    }
    const auto head = data.substr(0, end + 2);
    std::optional<std::uint64_t> length;
    bool chunked = false;
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const auto line = head.substr(at, head.find("\r\n", at) - at);
      if (const auto value = header(line, "content-length:")) length = number(*value, 10);
      if (const auto value = header(line, "transfer-encoding:")) chunked = *value == "chunked";
      at += line.size() + 2;
    }
    const auto body = data.substr(end + 4);
    if (chunked) return check_chunks(end + 4, body);
    if (length != body_.size()) return std::unexpected("another length: " + std::string(head));
    if (body.size() < body_.size()) return incomplete(data);
    if (body.substr(0, body_.size()) != body_) return std::unexpected("another content");
    return end + 4 + body_.size();
  }

 private:
  static std::expected<std::size_t, std::string> incomplete(std::string_view data) {
    if (data.size() > kMaxAnswerBytes) return std::unexpected("an endless answer");
    return 0;
  }
  static std::optional<std::string_view> header(std::string_view line, std::string_view name) {
    if (line.size() < name.size() || ::strncasecmp(line.data(), name.data(), name.size()) != 0) {
      return std::nullopt;
    }
    line.remove_prefix(name.size());
    while (line.starts_with(' ')) line.remove_prefix(1);
    return line;
  }
  std::expected<std::size_t, std::string> check_chunks(std::size_t head,
                                                       std::string_view data) const {
    std::size_t at = 0;
    std::size_t checked = 0;
    for (;;) {
      const auto line_end = data.find("\r\n", at);
      if (line_end == std::string_view::npos) return incomplete(data);
      const auto size = number(data.substr(at, line_end - at), 16);
      if (!size || *size > body_.size() - checked) return std::unexpected("a bad chunk size");
      at = line_end + 2;
      if (data.size() < at + *size + 2) return incomplete(data);
      const auto chunk = data.substr(at, *size);
      if (chunk != std::string_view(body_).substr(checked, *size) ||
          data.substr(at + *size, 2) != "\r\n") {
        return std::unexpected("another content");
      }
      at += *size + 2;
      checked += *size;
      if (*size > 0) continue;
      if (checked != body_.size()) return std::unexpected("another length");
      return head + at;
    }
  }

  std::string body_;
};

// Connects to "tcp:IP:PORT" or "unix:PATH".
int dial(const std::string& address) {
  if (address.starts_with("unix:")) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const auto path = address.substr(5);
    if (path.size() >= sizeof to.sun_path) fail("too long: " + address);
    std::memcpy(to.sun_path, path.data(), path.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      fail_errno(address);
    }
    return fd;
  }
  const auto colon = address.rfind(':');
  const auto port = number(std::string_view(address).substr(colon + 1), 10);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  if (!address.starts_with("tcp:") || colon <= 3 || !port || *port > UINT16_MAX ||
      ::inet_pton(AF_INET, address.substr(4, colon - 4).c_str(), &to.sin_addr) != 1) {
    fail("neither tcp:IP:PORT nor unix:PATH: " + address);
  }
  to.sin_port = htons(static_cast<std::uint16_t>(*port));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    fail_errno(address);
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

struct Connection {
  int fd = -1;
  std::uint64_t sent_at = 0;
  std::string received;
};

// The CPU time of processes, by their own clocks.
class CpuClocks {
 public:
  explicit CpuClocks(const std::vector<pid_t>& pids) {
    for (const auto pid : pids) {
      clockid_t clock{};
      if (::clock_getcpuclockid(pid, &clock) != 0) fail("no process " + std::to_string(pid));
      clocks_.push_back(clock);
    }
  }
  std::vector<std::uint64_t> read() const {
    std::vector<std::uint64_t> out;
    for (const auto clock : clocks_) out.push_back(nanoseconds(clock));
    return out;
  }

 private:
  std::vector<clockid_t> clocks_;
};

// CPU time spent by anyone on this machine, to 10 ms a CPU; the guests of a hypervisor's others
// too.
std::uint64_t busy_nanoseconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  std::array<std::uint64_t, 8> ticks{};  // user nice system idle iowait irq softirq steal
  file >> name;
  for (auto& value : ticks) file >> value;
  const auto total = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  return total * 1'000'000'000U / static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Options {
  std::string connect;
  std::string request;  // the bytes of a request
  std::string body;     // of every answer
  std::size_t connections = 1;
  double warm_up_s = 0.3;
  double seconds = 1;
  std::uint64_t requests = UINT64_MAX;  // measured, at most
  std::vector<pid_t> pids;              // of the servers
};

class Load {
 public:
  explicit Load(const Options& options)
      : options_(options),
        check_(options.body),
        clocks_(options.pids),
        poller_(::epoll_create1(0)) {
    if (poller_ < 0) fail_errno("epoll");
    connections_.resize(options.connections);
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      connections_[i].fd = dial(options.connect);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      if (::epoll_ctl(poller_, EPOLL_CTL_ADD, connections_[i].fd, &event) != 0) {
        fail_errno("epoll");
      }
    }
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load() {
    for (const auto& connection : connections_) ::close(connection.fd);
    ::close(poller_);
  }

  void run() {
    for (auto& connection : connections_) send(connection);
    const auto begin = nanoseconds(CLOCK_MONOTONIC);
    run_until(begin + in_nanoseconds(options_.warm_up_s));

    latencies_.clear();
    const auto own = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    const auto servers = clocks_.read();
    const auto busy = busy_nanoseconds();
    const auto measured = nanoseconds(CLOCK_MONOTONIC);
    most_ = std::min<std::uint64_t>(options_.requests, kMaxSamples);
    run_until(measured + in_nanoseconds(options_.seconds));
    const auto elapsed = nanoseconds(CLOCK_MONOTONIC) - measured;
    const auto busy_after = busy_nanoseconds();
    const auto servers_after = clocks_.read();
    const auto own_after = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    if (latencies_.empty()) fail("no answer in time");

    std::uint64_t ours = own_after - own;
    for (std::size_t i = 0; i < servers.size(); ++i) ours += servers_after[i] - servers[i];
    const auto others =
        std::max<double>(static_cast<double>(busy_after - busy) - static_cast<double>(ours), 0) /
        static_cast<double>(elapsed);
    std::ranges::sort(latencies_);
    const auto count = static_cast<double>(latencies_.size());
    std::printf(
        "{\"requests\":%zu,\"seconds\":%.6f,\"requests_per_s\":%.1f,\"p50_us\":%.1f,"
        "\"p99_us\":%.1f,\"max_us\":%.1f,\"own_cpu_us\":%.2f,\"others_cpu\":%.2f,"
        "\"cpu_us\":{",
        latencies_.size(), static_cast<double>(elapsed) / 1e9,
        count * 1e9 / static_cast<double>(elapsed), percentile(50), percentile(99),
        static_cast<double>(latencies_.back()) / 1e3,
        static_cast<double>(own_after - own) / 1e3 / count, others);
    for (std::size_t i = 0; i < servers.size(); ++i) {
      std::printf("%s\"%d\":%.2f", i == 0 ? "" : ",", options_.pids[i],
                  static_cast<double>(servers_after[i] - servers[i]) / 1e3 / count);
    }
    std::printf("}}\n");
  }

 private:
  static std::uint64_t in_nanoseconds(double seconds) {
    return static_cast<std::uint64_t>(seconds * 1e9);
  }
  double percentile(std::size_t percent) const {
    return static_cast<double>(latencies_[(latencies_.size() - 1) * percent / 100]) / 1e3;
  }

  void send(Connection& connection) const {
    connection.sent_at = nanoseconds(CLOCK_MONOTONIC);
    const auto& bytes = options_.request;
    const auto sent = ::send(connection.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(bytes.size())) fail_errno("send");
  }

  // Runs to `deadline`, or until `most_` answers came.
  void run_until(std::uint64_t deadline) {
    std::array<epoll_event, 64> events{};
    std::array<char, kReadBytes> buffer;
    for (;;) {
      const int ready = ::epoll_wait(poller_, events.data(), static_cast<int>(events.size()), 1000);
      if (ready < 0 && errno != EINTR) fail_errno("epoll");
      if (ready == 0 && ++silent_seconds_ == 60) fail("no answer for 60 s");
      if (ready > 0) silent_seconds_ = 0;
      for (int i = 0; i < ready; ++i) {
        auto& connection = connections_[events[static_cast<std::size_t>(i)].data.u64];
        const auto count = ::recv(connection.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count < 0) fail_errno("recv");
        if (count == 0) fail("the server closed: " + connection.received.substr(0, 400));
        take(connection, {buffer.data(), static_cast<std::size_t>(count)});
      }
      if (latencies_.size() >= most_ || nanoseconds(CLOCK_MONOTONIC) >= deadline) return;
    }
  }

  void take(Connection& connection, std::string_view bytes) {
    if (!connection.received.empty()) {
      connection.received += bytes;
      bytes = connection.received;
    }
    const auto size = check_.check(bytes);
    if (!size) fail(size.error());
    if (*size == 0) {
      if (connection.received.empty()) connection.received = bytes;
      return;
    }
    if (*size != bytes.size()) fail("more than one answer to one request");
    connection.received.clear();
    if (latencies_.size() < most_) {
      latencies_.push_back(static_cast<std::uint32_t>(
          std::min<std::uint64_t>(nanoseconds(CLOCK_MONOTONIC) - connection.sent_at, UINT32_MAX)));
    }
    send(connection);
  }

  const Options& options_;
  AnswerCheck check_;
  CpuClocks clocks_;
  int poller_;
  std::vector<Connection> connections_;
  std::vector<std::uint32_t> latencies_;  // nanoseconds
  std::uint64_t most_ = kMaxSamples;
  int silent_seconds_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string request_file;
  std::string body_file;
  CLI::App app("Closed-loop HTTP/1.1 load; prints one JSON object");
  app.add_option("--connect", options.connect, "tcp:IP:PORT or unix:PATH")->required();
  app.add_option("--request", request_file, "file with the bytes of the request")->required();
  app.add_option("--body", body_file, "file with the body every answer must have")->required();
  app.add_option("--connections", options.connections)->check(CLI::Range(1, 1024));
  app.add_option("--warm-up", options.warm_up_s, "seconds")->check(CLI::Range(0.0, 60.0));
  app.add_option("--seconds", options.seconds, "measured")->check(CLI::Range(0.01, 600.0));
  app.add_option("--requests", options.requests, "measured, at most");
  app.add_option("--pid", options.pids, "servers whose CPU time is counted");
  CLI11_PARSE(app, argc, argv);
  options.request = read_file(request_file);
  options.body = read_file(body_file);
  Load(options).run();
}
