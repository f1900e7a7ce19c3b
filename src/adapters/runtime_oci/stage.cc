#include "adapters/runtime_oci/stage.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "adapters/evidence/process_identity.h"
#include "adapters/runtime_oci/cgroup.h"
#include "adapters/runtime_oci/command.h"
#include "adapters/runtime_oci/container_spec.h"
#include "adapters/runtime_oci/disk.h"
#include "adapters/runtime_oci/host_template.h"
#include "adapters/runtime_oci/mounts.h"
#include "adapters/runtime_oci/sandbox_folder.h"
#include "adapters/templates/template_store.h"
#include "base/result.h"
#include "base/text.h"

namespace space::oci {
namespace json = boost::json;
namespace {

using Done = RuntimeResult<void>;

// Returns the error of a step without a value.
#define SPACE_STEP(expr) \
  if (auto step = (expr); !step) return std::unexpected(std::move(step).error())

constexpr std::size_t kMaxRequest = 4U << 20;
constexpr std::int64_t kListenMs = 20'000;  // from the container's start to the guest's listener
constexpr std::int64_t kFreezeMs = 10'000;
constexpr std::int64_t kEndMs = 10'000;  // for processes, groups and devices to go away
constexpr int kFolderFd = 3;
constexpr int kSecretFd = 4;
constexpr const char* kGuestPort = "1024";

// Mount point for the tree under construction; each stage sees only its own tmpfs there. It is here
// and not in the data folder because the container's ids must be able to walk to it.
constexpr const char* kStagingPoint = "/run/space-stage";
const std::string kLower = std::string(kStagingPoint) + "/lower";
const std::string kDisk = std::string(kStagingPoint) + "/disk";
const std::string kRoot = std::string(kStagingPoint) + "/root";

struct Request {
  OciConfig config;
  StageStart start;  // for other verbs only handle and artifact are set
};

json::object encode_config(const OciConfig& config) {
  return {{"data_folder", config.data_folder},
          {"templates_folder", config.templates_folder},
          {"artifacts_folder", config.artifacts_folder},
          {"guest_program", config.guest_program},
          {"runtime_program", config.runtime_program},
          {"cgroup_parent", config.cgroup_parent},
          {"first_uid", config.first_uid}};
}

RuntimeResult<Request> decode_request(const std::string& text) {
  try {
    const auto value = json::parse(text);
    const auto string = [](const json::value& in, const char* key) {
      return json::value_to<std::string>(in.at(key));
    };
    Request request;
    const auto& config = value.at("config");
    request.config.data_folder = string(config, "data_folder");
    request.config.templates_folder = string(config, "templates_folder");
    request.config.artifacts_folder = string(config, "artifacts_folder");
    request.config.guest_program = string(config, "guest_program");
    request.config.runtime_program = string(config, "runtime_program");
    request.config.cgroup_parent = string(config, "cgroup_parent");
    request.config.first_uid = config.at("first_uid").to_number<std::uint32_t>();
    auto& start = request.start;
    start.handle = string(value, "handle");
    start.artifact = string(value, "artifact");
    if (!value.as_object().contains("spec")) return request;
    start.sandbox = string(value, "sandbox");
    start.slot = value.at("slot").to_number<std::uint32_t>();
    start.first_public_pid = value.at("first_public_pid").to_number<std::uint32_t>();
    const auto& spec = value.at("spec");
    start.spec.template_name = string(spec, "template");
    start.spec.memory_bytes = spec.at("memory_bytes").to_number<std::uint64_t>();
    start.spec.cpu_millis = spec.at("cpu_millis").to_number<std::uint32_t>();
    start.spec.max_processes = spec.at("max_processes").to_number<std::uint32_t>();
    start.spec.disk_bytes = spec.at("disk_bytes").to_number<std::uint64_t>();
    for (const auto& [name, env] : spec.at("envs").as_object()) {
      start.spec.envs.emplace(name, json::value_to<std::string>(env));
    }
    return request;
  } catch (const std::exception& e) {
    return failure(RuntimeError::kFailed, std::string("bad request: ") + e.what());
  }
}

bool is_crun(const OciConfig& config) {
  return std::filesystem::path(config.runtime_program).filename() == "crun";
}

std::vector<std::string> runtime_command(const OciConfig& config) {
  return {config.runtime_program, "--root", config.data_folder + "/runtime"};
}

// crun 1.8 refuses to run where the unified hierarchy is mounted beside v1 ones, which carry the
// limits then. It still makes a folder in its place: on a tmpfs that ends with this process.
Done hide_unified(const OciConfig& config) {
  SPACE_TRY(const CgroupMounts mounts, read_cgroup_mounts());
  if (mounts.mode != CgroupMode::kHybrid || !is_crun(config)) return {};
  const char* point = mounts.unified.c_str();
  if (::umount2(point, MNT_DETACH) != 0 ||
      ::mount("space-stage", point, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m") != 0) {
    return errno_failure("hide " + mounts.unified);
  }
  return {};
}

Done mount_staging() {
  if (::mkdir(kStagingPoint, 0711) != 0 && errno != EEXIST) {
    return errno_failure(std::string("mkdir ") + kStagingPoint);
  }
  if (::mount("space-stage", kStagingPoint, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=1m") !=
      0) {
    return errno_failure("mount the staging folder");
  }
  for (const auto& folder : {kLower, kDisk, kRoot}) SPACE_STEP(make_folder(folder, 0755));
  return {};
}

// The lowest layer of a sandbox.
struct Lower {
  std::string root;
  // Absent for "host", which is what the machine is now and gets the host's /usr.
  std::optional<templates::TemplateRef> ref;
};

RuntimeResult<Lower> host_lower(const OciConfig& config) {
  SPACE_TRY(const std::string root, host_template(config.templates_folder));
  return Lower{root, std::nullopt};
}

// For a fresh disk: the newest build of the template that was asked for.
RuntimeResult<Lower> newest_lower(const Request& request) {
  const auto& name = request.start.spec.template_name;
  if (name == kHostTemplate) return host_lower(request.config);
  const templates::TemplateStore store(request.config.templates_folder);
  auto ref = store.newest(name);
  if (!ref) {
    return failure(RuntimeError::kNoSuchTemplate, "template " + name +
                                                      " is not built on this machine: space "
                                                      "template build " +
                                                      name);
  }
  auto root = store.root(*ref);
  return Lower{root, std::move(ref)};
}

// For a disk that was used before: the very template below it, since the two only fit together.
RuntimeResult<Lower> marked_lower(const OciConfig& config, const std::string& image) {
  SPACE_TRY(const std::string mark, marked_template(image));
  if (mark.empty()) return host_lower(config);
  auto ref = templates::TemplateRef::parse(mark);
  const templates::TemplateStore store(config.templates_folder);
  if (!ref || !store.has(*ref)) {
    return failure(RuntimeError::kUnsupported,
                   "template " + mark + ", which it was made of, is not on this machine");
  }
  auto root = store.root(*ref);
  return Lower{root, std::move(ref)};
}

// The writable layer, which names its template before that is opened: so `space template rm` cannot
// overlook a user.
RuntimeResult<Lower> make_disk(const Request& request, const SandboxFolder& folder) {
  const auto& config = request.config;
  const auto& start = request.start;
  if (!start.artifact.empty()) {
    const auto artifact = artifact_path(config, start.artifact);
    SPACE_TRY(Lower lower, marked_lower(config, artifact));
    SPACE_STEP(copy_sparse(artifact, folder.image));
    return lower;
  }
  SPACE_TRY(Lower lower, newest_lower(request));
  SPACE_TRY(const std::string image, empty_image(config.templates_folder, start.spec.disk_bytes));
  SPACE_STEP(copy_sparse(image, folder.image));
  if (lower.ref) SPACE_STEP(mark_template(folder.image, lower.ref->text()));
  return lower;
}

// Mounts the container's root at kRoot: template, writable layer, for the template "host" the
// host's /usr, and the guest program.
Done mount_root(const Request& request, const SandboxFolder& folder, const Lower& lower,
                std::uint32_t base) {
  SPACE_TRY(const Fd ids, make_user_namespace(base));

  SPACE_TRY(const Fd lower_mount, clone_mount(lower.root));
  SPACE_STEP(set_attributes(lower_mount, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, ids.get()));
  SPACE_STEP(attach(lower_mount, kLower));

  {
    SPACE_TRY(const LoopDevice device, attach_loop(folder.image));
    SPACE_TRY(const Fd disk, mount_ext4(device.path));
    SPACE_STEP(set_attributes(disk, 0, ids.get()));
    SPACE_STEP(attach(disk, kDisk));
  }

  {
    const ActAs owner(base);
    if (!owner.ok()) return failure(RuntimeError::kFailed, "cannot act as the sandbox's root");
    const bool fresh = !exists(kDisk + "/upper");
    SPACE_STEP(make_folder(kDisk + "/upper", 0755));
    SPACE_STEP(make_folder(kDisk + "/work", 0700));
    // The options that make the upper layer depend on this very lower layer are off: it moves.
    const std::string options = "lowerdir=" + kLower + ",upperdir=" + kDisk +
                                "/upper,workdir=" + kDisk +
                                "/work,index=off,metacopy=off,xino=off,redirect_dir=off";
    if (::mount("overlay", kRoot.c_str(), "overlay", MS_NODEV, options.c_str()) != 0) {
      return errno_failure("mount overlay");
    }
    if (fresh) {
      const auto& name = request.start.sandbox;
      SPACE_STEP(write_file(kRoot + "/etc/hostname", name + "\n", 0644));
      SPACE_STEP(write_file(
          kRoot + "/etc/hosts",
          "127.0.0.1\tlocalhost " + name + "\n::1\tlocalhost ip6-localhost ip6-loopback\n", 0644));
    }
  }

  SPACE_TRY(const Fd guest, clone_mount(request.config.guest_program));
  SPACE_STEP(set_attributes(guest, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID));
  // A writable layer of an artifact could hold links where these are mounted: beneath-only look-up.
  const Fd root(::open(kRoot.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return errno_failure("open the root folder");
  if (!lower.ref) {
    SPACE_TRY(const Fd usr, clone_mount("/usr"));
    SPACE_STEP(set_attributes(usr, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, ids.get()));
    SPACE_STEP(attach_beneath(usr, root, "usr"));
  }
  SPACE_STEP(attach_beneath(guest, root, ".space/spaced-guest"));
  return {};
}

// Descriptor 3: the socket folder as the root of a mount of its own, so that ".." leads nowhere.
Done place_socket_folder(const SandboxFolder& folder) {
  SPACE_TRY(const Fd mount, clone_mount(folder.vsock));
  SPACE_STEP(set_attributes(mount, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  if (::dup2(mount.get(), kFolderFd) < 0) return errno_failure("dup2");
  return {};
}

// Whether a stream socket named v.sock listens in the network namespace of `pid`, where only the
// guest has run so far.
bool listens(pid_t pid) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/net/unix", kMaxRequest);
  if (!text) return false;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string skip;
    std::string flags;
    std::string type;
    std::string path;
    fields >> skip >> skip >> skip >> flags >> type >> skip >> skip >> path;
    if (flags == "00010000" && type == "0001" && (path == "v.sock" || path.ends_with("/v.sock"))) {
      return true;
    }
  }
  return false;
}

RuntimeResult<RuntimeInstance> wait_for_guest(const Request& request, const SandboxFolder& folder) {
  SPACE_TRY(const std::string text, read_file(folder.pid, 64));
  const auto number = parse_decimal(text.substr(0, text.find('\n')));
  if (!number || *number > INT32_MAX) return failure(RuntimeError::kFailed, "bad pid file");
  const auto pid = static_cast<pid_t>(*number);
  struct stat guest{};
  if (::stat(request.config.guest_program.c_str(), &guest) != 0) return errno_failure("stat guest");
  for (const auto deadline = now_ms() + kListenMs; now_ms() < deadline; sleep_ms(1)) {
    struct stat socket{};
    const bool bound = ::lstat(folder.socket.c_str(), &socket) == 0 && S_ISSOCK(socket.st_mode);
    const auto process = evidence::read_process_identity(pid);
    if (!process) return failure(RuntimeError::kFailed, "the guest ended before it listened");
    if (!bound || !listens(pid)) continue;
    if (process->exe_inode != guest.st_ino || process->exe_device != guest.st_dev) {
      return failure(RuntimeError::kFailed, "the container's first process is not the guest");
    }
    RuntimeInstance instance;
    instance.handle = request.start.handle;
    instance.guest_process = *process;
    instance.transport.socket_path = folder.socket;
    instance.transport.path_device = socket.st_dev;
    instance.transport.path_inode = socket.st_ino;
    return instance;
  }
  return failure(RuntimeError::kTimedOut, "the guest did not listen in time");
}

Done start(const Request& request) {
  const auto& config = request.config;
  const auto& start = request.start;
  const SandboxFolder folder(config, start.handle);
  const std::uint32_t base = config.first_uid + start.slot * kIdsPerSandbox;
  ::umask(022);
  for (const auto& path : {config.data_folder, config.data_folder + "/sandboxes",
                           config.data_folder + "/runtime", config.templates_folder}) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return failure(RuntimeError::kFailed, "create " + path + ": " + error.message());
  }
  if (::mkdir(folder.path.c_str(), 0700) != 0) return errno_failure("mkdir " + folder.path);
  SandboxMeta meta{start.slot, read_boot_id(), std::nullopt};
  SPACE_STEP(write_meta(folder, meta));
  SPACE_STEP(make_folder(folder.bundle, 0700));
  SPACE_STEP(make_folder(folder.vsock, 0700));
  if (::chown(folder.vsock.c_str(), base, base) != 0) return errno_failure("chown vsock");

  SPACE_TRY(const Lower lower, make_disk(request, folder));

  ContainerSpec spec;
  spec.root = kRoot;
  spec.hostname = start.sandbox;
  spec.arguments = {"/.space/spaced-guest",
                    "--listen-dir-fd",
                    std::to_string(kFolderFd),
                    "--secret-fd",
                    std::to_string(kSecretFd),
                    "--port",
                    kGuestPort,
                    "--sandbox",
                    start.sandbox,
                    "--first-public-pid",
                    std::to_string(start.first_public_pid)};
  for (const auto& [name, value] : start.spec.envs) {
    spec.arguments.emplace_back("--env");
    spec.arguments.push_back(name + "=" + value);
  }
  spec.cgroup_path = cgroup_path(config, start.handle);
  spec.first_uid = base;
  spec.memory_bytes = start.spec.memory_bytes;
  spec.cpu_millis = start.spec.cpu_millis;
  spec.max_processes = start.spec.max_processes;
  SPACE_STEP(write_file(folder.bundle + "/config.json",
                        json::serialize(make_container_config(spec)), 0600));

  SPACE_STEP(enter_private_mounts());
  SPACE_STEP(hide_unified(config));
  SPACE_STEP(mount_staging());
  SPACE_STEP(mount_root(request, folder, lower, base));
  SPACE_STEP(place_socket_folder(folder));

  auto command = runtime_command(config);
  for (const auto& argument :
       {std::string("run"), std::string("--detach"), std::string("--pid-file"), folder.pid,
        std::string("--bundle"), folder.bundle, std::string("--preserve-fds"), std::string("2"),
        start.handle}) {
    command.push_back(argument);
  }
  SPACE_TRY(const int status, run_command(command, /*keep_fds=*/true));
  if (status != 0) {
    return failure(RuntimeError::kFailed,
                   config.runtime_program + " run: status " + std::to_string(status));
  }
  SPACE_TRY(meta.instance, wait_for_guest(request, folder));
  return write_meta(folder, meta);
}

// The instance's group, once its first process is known to be the recorded one.
RuntimeResult<std::pair<SandboxMeta, Cgroup>> find_running(const Request& request) {
  const SandboxFolder folder(request.config, request.start.handle);
  SPACE_TRY(SandboxMeta meta, read_meta(folder));
  if (!meta.instance || meta.boot_id != read_boot_id() ||
      !evidence::alive(meta.instance->guest_process)) {
    return failure(RuntimeError::kNoSuchInstance, request.start.handle + " is not running");
  }
  SPACE_TRY(CgroupMounts mounts, read_cgroup_mounts());
  return std::pair(std::move(meta),
                   Cgroup(std::move(mounts), cgroup_path(request.config, request.start.handle)));
}

// Writes everything the frozen processes have written to their disk through to ours.
Done sync_disk(const SandboxMeta& meta) {
  const std::string root = "/proc/" + std::to_string(meta.instance->guest_process.pid) + "/root";
  const Fd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || !evidence::alive(meta.instance->guest_process)) return errno_failure("open " + root);
  if (::syncfs(fd.get()) != 0) return errno_failure("sync the sandbox's disk");
  return {};
}

Done freeze(const Request& request) {
  SPACE_TRY(auto running, find_running(request));
  SPACE_STEP(running.second.freeze(now_ms() + kFreezeMs));
  return sync_disk(running.first);
}

Done thaw(const Request& request) {
  SPACE_TRY(auto running, find_running(request));
  return running.second.thaw(now_ms() + kFreezeMs);
}

Done publish(const Request& request) {
  const auto& config = request.config;
  const std::string path = artifact_path(config, request.start.artifact);
  if (exists(path)) return {};
  SPACE_TRY(auto running, find_running(request));
  SPACE_TRY(const bool frozen, running.second.frozen());
  if (!frozen) return failure(RuntimeError::kFailed, request.start.handle + " is not frozen");
  SPACE_STEP(sync_disk(running.first));
  std::error_code error;
  std::filesystem::create_directories(config.artifacts_folder, error);
  // A leading dot is in no artifact name.
  const std::string next = artifact_path(config, "." + request.start.artifact + ".next");
  const auto write = [&]() -> Done {
    SPACE_STEP(copy_sparse(SandboxFolder(config, request.start.handle).image, next));
    const Fd fd(::open(next.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd || ::fsync(fd.get()) != 0) return errno_failure("sync " + next);
    if (::renameat2(AT_FDCWD, next.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0 &&
        errno != EEXIST) {
      return errno_failure("rename " + next);
    }
    return sync_folder(config.artifacts_folder);
  };
  auto written = write();
  ::unlink(next.c_str());
  return written;
}

Done remove_artifact(const Request& request) {
  for (const auto& name : {request.start.artifact, "." + request.start.artifact + ".next"}) {
    if (::unlink(artifact_path(request.config, name).c_str()) != 0 && errno != ENOENT) {
      return errno_failure("remove " + name);
    }
  }
  if (!exists(request.config.artifacts_folder)) return {};
  return sync_folder(request.config.artifacts_folder);
}

Done destroy(const Request& request) {
  const auto& config = request.config;
  const auto& handle = request.start.handle;
  const SandboxFolder folder(config, handle);
  const auto deadline = now_ms() + kEndMs;
  SPACE_TRY(CgroupMounts mounts, read_cgroup_mounts());
  Cgroup cgroup(std::move(mounts), cgroup_path(config, handle));
  SPACE_STEP(cgroup.kill_all(deadline));
  if (exists(config.data_folder + "/runtime/" + handle)) {
    SPACE_STEP(enter_private_mounts());
    SPACE_STEP(hide_unified(config));
    auto command = runtime_command(config);
    for (const char* argument : {"delete", "--force"}) command.emplace_back(argument);
    command.push_back(handle);
    // Its state may be half made; what it leaves is removed here.
    static_cast<void>(run_command(command));
    SPACE_STEP(remove_tree(config.data_folder + "/runtime/" + handle));
  }
  SPACE_STEP(cgroup.kill_all(deadline));
  SPACE_STEP(cgroup.remove(deadline));
  SPACE_STEP(wait_loop_gone(folder.image, deadline));
  return remove_tree(folder.path);
}

// Starts /bin/true of the host's own root in a container with everything a sandbox gets.
Done probe(const Request& request) {
  OciConfig config = request.config;
  const std::string folder = std::string(kStagingPoint) + "/disk";
  config.data_folder = folder;
  SPACE_STEP(enter_private_mounts());
  SPACE_STEP(hide_unified(config));
  SPACE_STEP(mount_staging());
  SPACE_TRY(const Fd host, clone_mount("/"));
  SPACE_STEP(set_attributes(host, MOUNT_ATTR_RDONLY));
  SPACE_STEP(attach(host, kRoot));
  SPACE_TRY(const Fd usr, clone_mount("/usr"));
  SPACE_STEP(attach(usr, kRoot + "/usr"));
  SPACE_STEP(make_folder(folder + "/runtime", 0700));
  const std::string name = "space-probe-" + std::to_string(::getpid());
  ContainerSpec spec;
  spec.root = kRoot;
  spec.hostname = "probe";
  spec.arguments = {"/usr/bin/true"};
  spec.cgroup_path = "/" + name;
  spec.first_uid = 1U << 30;  // nobody's files
  spec.memory_bytes = 64U << 20;
  spec.cpu_millis = 1000;
  spec.max_processes = 16;
  SPACE_STEP(
      write_file(folder + "/config.json", json::serialize(make_container_config(spec)), 0600));
  auto command = runtime_command(config);
  for (const auto& argument : {std::string("run"), std::string("--bundle"), folder, name}) {
    command.push_back(argument);
  }
  SPACE_TRY(const int status, run_command(command));
  if (status != 0) {
    return failure(RuntimeError::kUnsupported,
                   config.runtime_program + " cannot start a container");
  }
  return {};
}

// Tries an overlay whose layers map their ids, as mount_root does it.
Done try_mapped_overlay() {
  constexpr std::uint32_t kBase = 1U << 30;
  SPACE_STEP(enter_private_mounts());
  SPACE_STEP(mount_staging());
  SPACE_TRY(const Fd ids, make_user_namespace(kBase));
  SPACE_TRY(const Fd lower, clone_mount("/usr"));
  SPACE_STEP(set_attributes(lower, MOUNT_ATTR_RDONLY, ids.get()));
  SPACE_STEP(attach(lower, kLower));
  if (::mount("overlay", kRoot.c_str(), "overlay", MS_RDONLY,
              ("lowerdir=" + kLower + ":" + kDisk).c_str()) != 0) {
    return errno_failure("mount overlay");
  }
  return {};
}

json::array check(const Request& request) {
  json::array findings;
  const auto add = [&findings](const char* name, bool ok, const std::string& found,
                               const char* advice) {
    findings.push_back(json::object{{"name", name}, {"ok", ok}, {"advice", ok ? found : advice}});
  };
  const auto text_of = [](const Done& done) { return done ? std::string() : done.error().detail; };
  const bool root = ::geteuid() == 0;
  add("root", root, "running as root", "containers are started by root: run it with sudo");
  utsname kernel{};
  ::uname(&kernel);
  int major = 0;
  int minor = 0;
  char dot = 0;
  std::istringstream(kernel.release) >> major >> dot >> minor;
  add("kernel", major > 5 || (major == 5 && minor >= 19), kernel.release,
      "Linux 5.19 or later is needed for overlays with mapped ids");
  const auto mounts = read_cgroup_mounts();
  add("cgroups", mounts.has_value(), mounts ? std::string(to_string(mounts->mode)) : "",
      "mount the cgroup hierarchies (systemd does)");
  add("loop devices", ::access("/dev/loop-control", R_OK | W_OK) == 0, "/dev/loop-control",
      "load the loop module: modprobe loop");
  const auto mkfs = run_command({"mkfs.ext4", "-V"});
  add("mkfs.ext4", mkfs && *mkfs == 0, "found", "install it: apt install e2fsprogs");
  struct stat guest{};
  const auto& program = request.config.guest_program;
  const bool executable = ::stat(program.c_str(), &guest) == 0 && S_ISREG(guest.st_mode) &&
                          (guest.st_mode & 0111) == 0111;
  add("guest program", executable, program, "spaced-guest is missing: build it with ./dev build");
  if (!root) return findings;
  const auto ids = make_user_namespace(1U << 30);
  add("user namespaces", ids.has_value(), "can be made",
      "allow them: sysctl user.max_user_namespaces=15000");
  const auto runtime = probe(request);
  add("container runtime", runtime.has_value(), request.config.runtime_program,
      (text_of(runtime) + "; install one that works here: apt install crun runc").c_str());
  const auto overlay = try_mapped_overlay();
  add("overlay with mapped ids", overlay.has_value(), "works",
      (text_of(overlay) + "; /usr must be on a file system with mapped mounts (ext4, xfs, btrfs)")
          .c_str());
  return findings;
}

std::string run_verb(std::string_view verb) {
  const auto text = read_file("/proc/self/fd/0", kMaxRequest);
  if (!text) return encode_answer(std::unexpected(text.error()));
  const auto request = decode_request(*text);
  if (!request) return encode_answer(std::unexpected(request.error()));
  if (verb == "start") return encode_answer(start(*request));
  if (verb == "freeze") return encode_answer(freeze(*request));
  if (verb == "thaw") return encode_answer(thaw(*request));
  if (verb == "publish") return encode_answer(publish(*request));
  if (verb == "destroy") return encode_answer(destroy(*request));
  if (verb == "remove-artifact") return encode_answer(remove_artifact(*request));
  if (verb == "probe") return encode_answer(probe(*request));
  if (verb == "check") return json::serialize(check(*request));
  return encode_answer(failure(RuntimeError::kFailed, "unknown verb"));
}

json::object encode_request(const OciConfig& config, const std::string& handle,
                            const std::string& artifact) {
  return {{"config", encode_config(config)}, {"handle", handle}, {"artifact", artifact}};
}

}  // namespace

std::string start_request(const OciConfig& config, const StageStart& start) {
  auto request = encode_request(config, start.handle, start.artifact);
  json::object envs;
  for (const auto& [name, value] : start.spec.envs) envs[name] = value;
  request["sandbox"] = start.sandbox;
  request["slot"] = start.slot;
  request["first_public_pid"] = start.first_public_pid;
  request["spec"] = {
      {"template", start.spec.template_name}, {"memory_bytes", start.spec.memory_bytes},
      {"cpu_millis", start.spec.cpu_millis},  {"max_processes", start.spec.max_processes},
      {"disk_bytes", start.spec.disk_bytes},  {"envs", envs}};
  return json::serialize(request);
}

std::string handle_request(const OciConfig& config, const std::string& handle,
                           const std::string& artifact) {
  return json::serialize(encode_request(config, handle, artifact));
}

std::string encode_answer(const RuntimeResult<void>& result) {
  if (result) return json::serialize(json::object{{"ok", true}});
  return json::serialize(json::object{{"ok", false},
                                      {"error", static_cast<int>(result.error().error)},
                                      {"detail", result.error().detail}});
}

RuntimeResult<void> decode_answer(std::string_view text) {
  try {
    const auto value = json::parse(json::string_view(text.data(), text.size()));
    if (value.at("ok").as_bool()) return {};
    const auto error = value.at("error").to_number<std::uint8_t>();
    if (error > static_cast<std::uint8_t>(RuntimeError::kFailed)) {
      return failure(RuntimeError::kFailed, "space-stage: unknown error");
    }
    return failure(static_cast<RuntimeError>(error),
                   json::value_to<std::string>(value.at("detail")));
  } catch (const std::exception& e) {
    return failure(RuntimeError::kFailed, std::string("space-stage gave no answer: ") + e.what());
  }
}

int stage_main(int argc, char** argv) {
  if (argc != 2) return 2;
  ::close_range(kSecretFd + 1, ~0U, 0);
  const Fd answer(::fcntl(1, F_DUPFD_CLOEXEC, kSecretFd + 1));
  if (!answer) return 2;
  try {
    return write_all(answer.get(), run_verb(argv[1])) ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

}  // namespace space::oci
