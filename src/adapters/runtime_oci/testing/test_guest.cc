// A guest for the tests of the OCI runtime: listens like spaced-guest, then runs shell commands.
// A connection sends one line "UID COMMAND\n" and gets the output followed by "\nexit STATUS\n";
// the line "secret\n" gets what descriptor 4 held, in hexadecimal.
#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; line.size() < 65536 && ::read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

void say(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) < 0) ::_exit(1);
}

std::string hex(const std::array<unsigned char, 64>& bytes, long size) {
  std::string out;
  for (long i = 0; i < size; ++i) {
    std::array<char, 3> two{};
    std::snprintf(two.data(), two.size(), "%02x", bytes[static_cast<std::size_t>(i)]);
    out += two.data();
  }
  return out;
}

void serve(int connection, const std::string& secret) {
  const std::string line = read_line(connection);
  if (line == "secret") return say(connection, secret);
  const auto space = line.find(' ');
  if (space == std::string::npos) return;
  const auto uid = static_cast<uid_t>(std::strtoul(line.c_str(), nullptr, 10));
  const std::string command = line.substr(space + 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGCHLD, SIG_DFL);
    ::dup2(connection, 1);
    ::dup2(connection, 2);
    ::setsid();
    if (::setgroups(0, nullptr) != 0 || ::setresgid(uid, uid, uid) != 0 ||
        ::setresuid(uid, uid, uid) != 0) {
      ::_exit(126);
    }
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0) return say(connection, "\nexit fork\n");
  say(connection, "\nexit " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 255) + "\n");
}

}  // namespace

int main() {
  std::array<unsigned char, 64> bytes{};
  const auto size = ::read(4, bytes.data(), bytes.size());
  const std::string secret = hex(bytes, size);
  ::close(4);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "/proc/self/fd/3/v.sock");
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 16) != 0) {
    std::perror("listen");
    return 1;
  }
  // Descriptor 3 stays open: a test shows that it leads nowhere.
  for (;;) {
    const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (connection < 0) continue;
    const pid_t child = ::fork();
    if (child == 0) {
      serve(connection, secret);
      ::_exit(0);
    }
    if (child < 0) say(connection, "\nexit fork\n");
    ::close(connection);
  }
}
