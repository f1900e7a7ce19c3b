#include "adapters/sqlite/control_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>

#include "core/wire/record.h"

namespace space::sqlite {
namespace {

using fleet::ExecutionState;
using fleet::SandboxState;

constexpr std::int64_t kApplicationId = 0x53504331;  // "SPC1"
constexpr const char* kSchema = R"sql(
CREATE TABLE teams(
  id TEXT PRIMARY KEY) STRICT;
CREATE TABLE api_keys(
  hash BLOB PRIMARY KEY CHECK(length(hash) = 32),
  team TEXT NOT NULL REFERENCES teams(id),
  created_at INTEGER NOT NULL,
  revoked_at INTEGER) STRICT;
CREATE TABLE sessions(
  id BLOB PRIMARY KEY CHECK(length(id) = 16),
  credential BLOB NOT NULL CHECK(length(credential) = 32),
  holder BLOB NOT NULL CHECK(length(holder) = 32),
  expires_at INTEGER NOT NULL,
  UNIQUE(credential, holder)) STRICT;
-- The columns beside `body` repeat fields of the record in it, to be searched for.
CREATE TABLE sandboxes(
  id TEXT PRIMARY KEY,
  team TEXT NOT NULL REFERENCES teams(id),
  access BLOB NOT NULL UNIQUE CHECK(length(access) = 32),
  state INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  ends_at INTEGER NOT NULL,
  busy INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  body BLOB NOT NULL) STRICT;
-- 7 and 8 below: a kill has begun, or is done.
CREATE INDEX sandboxes_by_start ON sandboxes(team, started_at, id, state) WHERE state <> 8;
CREATE INDEX sandboxes_by_state ON sandboxes(team, state);
CREATE INDEX sandboxes_by_end ON sandboxes(state, ends_at);
CREATE INDEX sandboxes_busy ON sandboxes(id) WHERE busy = 1;
CREATE VIEW live_credentials(hash, team, sandbox) AS
  SELECT hash, team, NULL FROM api_keys WHERE revoked_at IS NULL UNION ALL
  SELECT access, team, id FROM sandboxes WHERE state NOT IN (7, 8);
CREATE VIEW ended_sessions(id, expires_at) AS
  SELECT id, expires_at FROM sessions WHERE
    NOT EXISTS (SELECT 1 FROM api_keys WHERE hash = credential AND revoked_at IS NULL) AND
    NOT EXISTS (SELECT 1 FROM sandboxes WHERE access = credential AND state NOT IN (7, 8));
CREATE TABLE executions(
  sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
  generation INTEGER NOT NULL CHECK(generation > 0),
  state INTEGER NOT NULL,
  route BLOB NOT NULL,
  body BLOB NOT NULL,
  UNIQUE(sandbox, generation)) STRICT;
CREATE INDEX executions_by_state ON executions(state);
CREATE TABLE bundles(
  version INTEGER PRIMARY KEY,
  body BLOB NOT NULL) STRICT;
CREATE TABLE workers(
  id TEXT PRIMARY KEY,
  boot BLOB NOT NULL CHECK(length(boot) = 16),
  bundle INTEGER NOT NULL,
  seen_at INTEGER NOT NULL) STRICT;
)sql";

static_assert(std::to_underlying(SandboxState::kKilling) == 7 &&
              std::to_underlying(SandboxState::kKilled) == 8);

// A row that does not read back as what was written; caught where every database error is.
struct CorruptRow : std::exception {
  const char* what() const noexcept override { return "a stored row is corrupt"; }
};

std::unexpected<StoreFailure> failure(StoreError error, std::string detail) {
  return std::unexpected(StoreFailure{error, std::move(detail)});
}

std::int64_t number(WallTime time) { return time.time_since_epoch().count(); }
WallTime time(std::int64_t count) { return WallTime{std::chrono::milliseconds{count}}; }
template <class Enum>
std::int64_t number(Enum value)
  requires std::is_enum_v<Enum>
{
  return static_cast<std::int64_t>(value);
}

// One statement with its values bound in order.
class Query {
 public:
  template <class... Values>
  Query(SQLite::Database& database, const char* sql, const Values&... values)
      : statement_(database, sql) {
    (bind(values), ...);
  }
  bool step() { return statement_.executeStep(); }
  // Number of rows changed.
  int run() { return statement_.exec(); }

  std::int64_t integer(int column) { return statement_.getColumn(column).getInt64(); }
  bool null(int column) { return statement_.getColumn(column).isNull(); }
  std::string text(int column) { return statement_.getColumn(column).getString(); }
  // Valid until the next step.
  ByteView bytes(int column) {
    const auto value = statement_.getColumn(column);
    return ByteView(static_cast<const std::byte*>(value.getBlob()),
                    static_cast<std::size_t>(value.getBytes()));
  }
  template <class Id>
  Id id(int column) {
    const auto parsed = Id::from(bytes(column));
    if (!parsed) throw CorruptRow();
    return *parsed;
  }
  template <class Name>
  Name name(int column) {
    auto parsed = Name::parse(text(column));
    if (!parsed) throw CorruptRow();
    return *std::move(parsed);
  }
  template <class Record>
  Record record(int column) {
    auto decoded = wire::decode<Record>(bytes(column));
    if (!decoded) throw CorruptRow();
    return *std::move(decoded);
  }

 private:
  void bind(std::int64_t value) { statement_.bind(next_++, value); }
  void bind(const std::string& value) { statement_.bind(next_++, value); }
  void bind(ByteView value) {
    statement_.bind(next_++, static_cast<const void*>(value.data()),
                    static_cast<int>(value.size()));
  }
  SQLite::Statement statement_;
  int next_ = 1;
};

// Runs `work` in one transaction, committed when it succeeds. Database errors end here.
template <class T>
StoreResult<T> transaction(SQLite::Database& database, SQLite::TransactionBehavior behavior,
                           const std::function<StoreResult<T>()>& work) {
  try {
    SQLite::Transaction scope(database, behavior);
    auto result = work();
    if (result) scope.commit();
    return result;
  } catch (const std::exception& error) {
    return failure(StoreError::kFailed, error.what());
  }
}
template <class T, class Work>
StoreResult<T> write(SQLite::Database& database, const Work& work) {
  return transaction<T>(database, SQLite::TransactionBehavior::IMMEDIATE, work);
}
template <class T, class Work>
StoreResult<T> read(SQLite::Database& database, const Work& work) {
  return transaction<T>(database, SQLite::TransactionBehavior::DEFERRED, work);
}

fleet::Snapshot with_executions(SQLite::Database& database, fleet::Sandbox sandbox) {
  fleet::Snapshot snapshot{std::move(sandbox), {}};
  Query rows(database,
             "SELECT body FROM executions WHERE sandbox = ? AND state <> ? ORDER BY generation",
             snapshot.sandbox.id.text(), number(ExecutionState::kGone));
  while (rows.step()) snapshot.executions.push_back(rows.record<fleet::Execution>(0));
  return snapshot;
}

std::optional<fleet::Snapshot> load_sandbox(SQLite::Database& database,
                                            const identity::SandboxId& id) {
  Query row(database, "SELECT body FROM sandboxes WHERE id = ?", id.text());
  if (!row.step()) return std::nullopt;
  return with_executions(database, row.record<fleet::Sandbox>(0));
}

// What a session of this credential would be, without id, holder and time; null when it opens none.
std::optional<SessionRow> authorise(SQLite::Database& database, const CredentialHash& credential) {
  Query row(database, "SELECT team, sandbox FROM live_credentials WHERE hash = ?",
            credential.view());
  if (!row.step()) return std::nullopt;
  SessionRow session;
  session.credential = credential;
  session.team = row.name<identity::TeamId>(0);
  if (!row.null(1)) session.sandbox = row.name<identity::SandboxId>(1);
  return session;
}

std::optional<SessionRow> find_live(SQLite::Database& database, const identity::SessionId& id,
                                    WallTime now) {
  Query row(database,
            "SELECT credential, holder, expires_at FROM sessions WHERE id = ? AND expires_at > ?",
            id.view(), number(now));
  if (!row.step()) return std::nullopt;
  auto session = authorise(database, row.id<CredentialHash>(0));
  if (!session) return std::nullopt;
  session->id = id;
  session->holder = row.id<identity::HolderId>(1);
  session->expires_at = time(row.integer(2));
  return session;
}

std::vector<identity::SandboxId> sandbox_ids(Query& rows) {
  std::vector<identity::SandboxId> ids;
  while (rows.step()) ids.push_back(rows.name<identity::SandboxId>(0));
  return ids;
}

Bytes route_bytes(const identity::RouteIdentity& route) {
  ByteWriter out;
  identity::write_route_identity(out, route);
  return out.take();
}

}  // namespace

SqliteControlStore::SqliteControlStore(std::unique_ptr<SQLite::Database> database)
    : database_(std::move(database)) {}
SqliteControlStore::~SqliteControlStore() = default;

std::expected<std::unique_ptr<SqliteControlStore>, std::string> SqliteControlStore::open(
    const std::filesystem::path& file) {
  const auto fail = [&file](const std::string& why) {
    return std::unexpected(file.string() + ": " + why);
  };
  // SQLite gives its -wal and -shm files the mode of this one.
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return fail(std::strerror(errno));
  const bool private_now = ::fchmod(descriptor, 0600) == 0;
  ::close(descriptor);
  if (!private_now) return fail(std::strerror(errno));
  try {
    auto database =
        std::make_unique<SQLite::Database>(file.string(), SQLite::OPEN_READWRITE, kBusyMs);
    const auto version = database->execAndGet("PRAGMA user_version").getInt();
    const auto application = database->execAndGet("PRAGMA application_id").getInt64();
    const bool empty = database->execAndGet("SELECT count(*) FROM sqlite_master").getInt() == 0;
    if (!empty && application != kApplicationId) return fail("is not a control store of SPACE");
    if (version != 0 && version < kSchemaVersion) {
      return fail("has schema version " + std::to_string(version) + " of a program before the " +
                  "first release; there is no way from it to version " +
                  std::to_string(kSchemaVersion) + ": remove the file and begin anew");
    }
    if (version > kSchemaVersion) {
      return fail("has schema version " + std::to_string(version) + ", newer than this program's " +
                  std::to_string(kSchemaVersion) + "; use the newer program");
    }
    database->exec("PRAGMA journal_mode = WAL");
    database->exec("PRAGMA synchronous = FULL");
    database->exec("PRAGMA foreign_keys = ON");
    if (const auto check = database->execAndGet("PRAGMA quick_check").getString(); check != "ok") {
      return fail("is corrupt (" + check + "); restore it from a backup");
    }
    if (version == 0) {
      SQLite::Transaction scope(*database, SQLite::TransactionBehavior::IMMEDIATE);
      // Another process may have made it while this one waited.
      if (database->execAndGet("PRAGMA user_version").getInt() == 0) {
        database->exec(kSchema);
        database->exec("PRAGMA application_id = " + std::to_string(kApplicationId));
        database->exec("PRAGMA user_version = " + std::to_string(kSchemaVersion));
      }
      scope.commit();
    }
    return std::unique_ptr<SqliteControlStore>(new SqliteControlStore(std::move(database)));
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

Task<StoreResult<void>> SqliteControlStore::add_api_key(ApiKeyRow row) {
  auto& database = *database_;
  co_return write<void>(database, [&]() -> StoreResult<void> {
    Query(database, "INSERT OR IGNORE INTO teams(id) VALUES(?)", row.team.text()).run();
    Query insert(database, "INSERT OR IGNORE INTO api_keys(hash, team, created_at) VALUES(?, ?, ?)",
                 row.hash.view(), row.team.text(), number(row.created_at));
    if (insert.run() == 0) return failure(StoreError::kAlreadyExists, "this key exists");
    return {};
  });
}

Task<StoreResult<void>> SqliteControlStore::revoke_api_key(CredentialHash hash, WallTime now) {
  auto& database = *database_;
  co_return write<void>(database, [&]() -> StoreResult<void> {
    Query update(database,
                 "UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?) WHERE hash = ?",
                 number(now), hash.view());
    if (update.run() == 0) return failure(StoreError::kNotFound, "no such key");
    return {};
  });
}

Task<StoreResult<std::vector<ApiKeyRow>>> SqliteControlStore::list_api_keys() {
  auto& database = *database_;
  using Rows = std::vector<ApiKeyRow>;
  co_return read<Rows>(database, [&]() -> StoreResult<Rows> {
    Rows found;
    Query rows(database, "SELECT hash, team, created_at, revoked_at FROM api_keys ORDER BY hash");
    while (rows.step()) {
      ApiKeyRow row{rows.id<CredentialHash>(0), rows.name<identity::TeamId>(1),
                    time(rows.integer(2)), std::nullopt};
      if (!rows.null(3)) row.revoked_at = time(rows.integer(3));
      found.push_back(std::move(row));
    }
    return found;
  });
}

Task<StoreResult<SessionRow>> SqliteControlStore::open_session(CredentialHash credential,
                                                               identity::HolderId holder,
                                                               identity::SessionId fresh,
                                                               WallTime now, WallTime expires_at) {
  auto& database = *database_;
  co_return write<SessionRow>(database, [&]() -> StoreResult<SessionRow> {
    auto row = authorise(database, credential);
    if (!row) return failure(StoreError::kNotFound, "no such credential");
    row->id = fresh;
    row->holder = holder;
    row->expires_at = expires_at;
    Query live(database,
               "SELECT id FROM sessions WHERE credential = ? AND holder = ? AND expires_at > ?",
               credential.view(), holder.view(), number(now));
    if (live.step()) row->id = live.id<identity::SessionId>(0);
    Query(database,
          "INSERT INTO sessions(id, credential, holder, expires_at) VALUES(?, ?, ?, ?) "
          "ON CONFLICT(credential, holder) "
          "DO UPDATE SET id = excluded.id, expires_at = excluded.expires_at",
          row->id.view(), credential.view(), holder.view(), number(expires_at))
        .run();
    return *std::move(row);
  });
}

Task<StoreResult<SessionRow>> SqliteControlStore::live_session(identity::SessionId id,
                                                               WallTime now) {
  auto& database = *database_;
  co_return read<SessionRow>(database, [&]() -> StoreResult<SessionRow> {
    auto found = find_live(database, id, now);
    if (!found) return failure(StoreError::kNotFound, "no such session");
    return *std::move(found);
  });
}

Task<StoreResult<std::vector<identity::SessionId>>> SqliteControlStore::end_sessions(WallTime now) {
  auto& database = *database_;
  using Ids = std::vector<identity::SessionId>;
  // Mostly there is nothing to end: look before taking the write lock.
  const auto due = read<bool>(database, [&]() -> StoreResult<bool> {
    Query row(database,
              "SELECT 1 FROM ended_sessions UNION ALL "
              "SELECT 1 FROM sessions WHERE expires_at <= ? LIMIT 1",
              number(now));
    return row.step();
  });
  if (!due) co_return std::unexpected(due.error());
  if (!*due) co_return Ids{};
  co_return write<Ids>(database, [&]() -> StoreResult<Ids> {
    Ids ended;
    Query rows(database, "SELECT id FROM ended_sessions WHERE expires_at > ? ORDER BY id",
               number(now));
    while (rows.step()) ended.push_back(rows.id<identity::SessionId>(0));
    Query(database,
          "DELETE FROM sessions WHERE expires_at <= ? OR id IN (SELECT id FROM ended_sessions)",
          number(now))
        .run();
    return ended;
  });
}

Task<StoreResult<void>> SqliteControlStore::insert_sandbox(fleet::Sandbox sandbox) {
  auto& database = *database_;
  co_return write<void>(database, [&]() -> StoreResult<void> {
    const auto body = wire::encode(sandbox);
    Query insert(
        database,
        "INSERT INTO sandboxes(id, team, access, state, started_at, ends_at, busy, revision, "
        "body) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        sandbox.id.text(), sandbox.team.text(), sandbox.access.view(), number(sandbox.state),
        number(sandbox.started_at), number(sandbox.ends_at),
        std::int64_t{sandbox.operation.has_value()}, static_cast<std::int64_t>(sandbox.revision),
        ByteView(body));
    if (insert.run() == 0) {
      return failure(StoreError::kAlreadyExists, "this sandbox id or access token is in use");
    }
    return {};
  });
}

Task<StoreResult<fleet::Snapshot>> SqliteControlStore::load(identity::SandboxId sandbox) {
  auto& database = *database_;
  co_return read<fleet::Snapshot>(database, [&]() -> StoreResult<fleet::Snapshot> {
    auto found = load_sandbox(database, sandbox);
    if (!found) return failure(StoreError::kNotFound, "no such sandbox");
    return *std::move(found);
  });
}

Task<StoreResult<fleet::Page>> SqliteControlStore::list(fleet::Filter filter,
                                                        std::optional<fleet::Position> after,
                                                        std::size_t limit) {
  auto& database = *database_;
  co_return read<fleet::Page>(database, [&]() -> StoreResult<fleet::Page> {
    std::int64_t states = filter.states.empty() ? ~std::int64_t{0} : 0;
    for (const auto state : filter.states) states |= std::int64_t{1} << number(state);
    const auto first = filter.newest_first ? WallTime::max() : WallTime::min();
    const auto from = after.value_or(fleet::Position{first, {}});
    Query rows(database,
               filter.newest_first
                   ? "SELECT body FROM sandboxes WHERE team = ? AND state <> 8 AND "
                     "(1 << state) & ? AND (started_at, id) < (?, ?) "
                     "ORDER BY started_at DESC, id DESC"
                   : "SELECT body FROM sandboxes WHERE team = ? AND state <> 8 AND "
                     "(1 << state) & ? AND (started_at, id) > (?, ?) ORDER BY started_at, id",
               filter.team.text(), states, number(from.started_at), from.sandbox.text());
    fleet::Page page;
    fleet::Pager pager(filter, limit, kMaxListScan);
    while (rows.step()) {
      auto sandbox = rows.record<fleet::Sandbox>(0);
      const auto verdict = pager.offer(sandbox);
      if (verdict == fleet::Pager::Verdict::kFull) break;
      if (verdict == fleet::Pager::Verdict::kTaken) {
        page.sandboxes.push_back(with_executions(database, std::move(sandbox)));
      }
    }
    page.next = pager.next();
    return page;
  });
}

Task<StoreResult<TeamCounts>> SqliteControlStore::count(identity::TeamId team) {
  auto& database = *database_;
  co_return read<TeamCounts>(database, [&]() -> StoreResult<TeamCounts> {
    const auto of = [&](SandboxState state) {
      Query row(database, "SELECT count(*) FROM sandboxes WHERE team = ? AND state = ?",
                team.text(), number(state));
      row.step();
      return static_cast<std::uint32_t>(row.integer(0));
    };
    return TeamCounts{of(SandboxState::kRunning), of(SandboxState::kPaused)};
  });
}

Task<StoreResult<void>> SqliteControlStore::commit(fleet::Snapshot snapshot) {
  auto& database = *database_;
  co_return write<void>(database, [&]() -> StoreResult<void> {
    auto& sandbox = snapshot.sandbox;
    const auto seen = static_cast<std::int64_t>(sandbox.revision);
    ++sandbox.revision;
    const auto body = wire::encode(sandbox);
    Query update(database,
                 "UPDATE sandboxes SET access = ?, state = ?, ends_at = ?, busy = ?, revision = ?, "
                 "body = ? WHERE id = ? AND revision = ?",
                 sandbox.access.view(), number(sandbox.state), number(sandbox.ends_at),
                 std::int64_t{sandbox.operation.has_value()}, seen + 1, ByteView(body),
                 sandbox.id.text(), seen);
    if (update.run() != 1) {
      Query exists(database, "SELECT 1 FROM sandboxes WHERE id = ?", sandbox.id.text());
      if (!exists.step()) return failure(StoreError::kNotFound, "no such sandbox");
      return failure(StoreError::kConflict, "the sandbox changed meanwhile");
    }
    for (const auto& execution : snapshot.executions) {
      const auto route = route_bytes(execution.route);
      const auto record = wire::encode(execution);
      Query upsert(database,
                   "INSERT INTO executions(sandbox, generation, state, route, body) "
                   "VALUES(?, ?, ?, ?, ?) ON CONFLICT(sandbox, generation) DO UPDATE "
                   "SET state = excluded.state, body = excluded.body "
                   "WHERE route = excluded.route",
                   sandbox.id.text(), static_cast<std::int64_t>(execution.route.generation.value),
                   number(execution.state), ByteView(route), ByteView(record));
      if (upsert.run() != 1) {
        return failure(StoreError::kAlreadyExists, "this generation is taken");
      }
    }
    return {};
  });
}

Task<StoreResult<std::vector<identity::SandboxId>>> SqliteControlStore::unfinished() {
  auto& database = *database_;
  using Ids = std::vector<identity::SandboxId>;
  co_return read<Ids>(database, [&]() -> StoreResult<Ids> {
    Query rows(database,
               "SELECT id FROM sandboxes WHERE busy = 1 UNION "
               "SELECT sandbox FROM executions WHERE state = ? ORDER BY 1",
               number(ExecutionState::kDiscarding));
    return sandbox_ids(rows);
  });
}

Task<StoreResult<std::vector<identity::SandboxId>>> SqliteControlStore::expired(WallTime now) {
  auto& database = *database_;
  using Ids = std::vector<identity::SandboxId>;
  co_return read<Ids>(database, [&]() -> StoreResult<Ids> {
    Query rows(database,
               "SELECT id FROM sandboxes WHERE state IN (?, ?, ?, ?) AND ends_at <= ? ORDER BY id",
               number(SandboxState::kCreating), number(SandboxState::kRunning),
               number(SandboxState::kFailed), number(SandboxState::kLost), number(now));
    return sandbox_ids(rows);
  });
}

Task<StoreResult<std::vector<fleet::Execution>>> SqliteControlStore::executions() {
  auto& database = *database_;
  using Rows = std::vector<fleet::Execution>;
  co_return read<Rows>(database, [&]() -> StoreResult<Rows> {
    Rows found;
    Query rows(database,
               "SELECT body FROM executions WHERE state <> ? ORDER BY sandbox, generation",
               number(ExecutionState::kGone));
    while (rows.step()) found.push_back(rows.record<fleet::Execution>(0));
    return found;
  });
}

Task<StoreResult<void>> SqliteControlStore::purge(WallTime before) {
  auto& database = *database_;
  co_return write<void>(database, [&]() -> StoreResult<void> {
    Query(database,
          "DELETE FROM sandboxes WHERE state = ? AND ends_at < ? AND NOT EXISTS "
          "(SELECT 1 FROM executions WHERE sandbox = sandboxes.id AND executions.state <> ?)",
          number(SandboxState::kKilled), number(before), number(ExecutionState::kGone))
        .run();
    return {};
  });
}

Task<StoreResult<MintView>> SqliteControlStore::mint_view(identity::SessionId session,
                                                          identity::SandboxId sandbox,
                                                          WallTime now) {
  auto& database = *database_;
  co_return read<MintView>(database, [&]() -> StoreResult<MintView> {
    return MintView{find_live(database, session, now), load_sandbox(database, sandbox)};
  });
}

Task<StoreResult<identity::KeyBundle>> SqliteControlStore::load_bundle() {
  auto& database = *database_;
  co_return read<identity::KeyBundle>(database, [&]() -> StoreResult<identity::KeyBundle> {
    Query row(database, "SELECT body FROM bundles ORDER BY version DESC LIMIT 1");
    if (!row.step()) return failure(StoreError::kNotFound, "no key bundle yet");
    auto bundle = identity::decode_bundle(row.bytes(0));
    if (!bundle) throw CorruptRow();
    return *std::move(bundle);
  });
}

Task<StoreResult<void>> SqliteControlStore::save_bundle(identity::KeyBundle bundle) {
  auto& database = *database_;
  co_return write<void>(database, [&]() -> StoreResult<void> {
    const auto version = static_cast<std::int64_t>(bundle.version.value);
    Query newer(database, "SELECT 1 FROM bundles WHERE version > ?", version);
    if (newer.step()) return failure(StoreError::kConflict, "a newer key bundle is stored");
    const auto body = identity::encode_bundle(bundle);
    Query(database,
          "INSERT INTO bundles(version, body) VALUES(?, ?) "
          "ON CONFLICT(version) DO UPDATE SET body = excluded.body",
          version, ByteView(body))
        .run();
    return {};
  });
}

Task<StoreResult<void>> SqliteControlStore::save_worker(WorkerRow row) {
  auto& database = *database_;
  co_return write<void>(database, [&]() -> StoreResult<void> {
    Query(
        database,
        "INSERT INTO workers(id, boot, bundle, seen_at) VALUES(?, ?, ?, ?) ON CONFLICT(id) "
        "DO UPDATE SET boot = excluded.boot, bundle = excluded.bundle, seen_at = excluded.seen_at",
        row.worker.text(), row.boot.view(), static_cast<std::int64_t>(row.bundle.value),
        number(row.seen_at))
        .run();
    return {};
  });
}

Task<StoreResult<std::vector<WorkerRow>>> SqliteControlStore::list_workers() {
  auto& database = *database_;
  using Rows = std::vector<WorkerRow>;
  co_return read<Rows>(database, [&]() -> StoreResult<Rows> {
    Rows found;
    Query rows(database, "SELECT id, boot, bundle, seen_at FROM workers ORDER BY id");
    while (rows.step()) {
      WorkerRow row{rows.name<identity::WorkerId>(0),
                    rows.id<identity::BootNonce>(1),
                    {static_cast<std::uint64_t>(rows.integer(2))},
                    time(rows.integer(3))};
      found.push_back(std::move(row));
    }
    return found;
  });
}

}  // namespace space::sqlite
