#include "services/node_api/front.h"

#include <string>
#include <vector>

#include "services/node_api/json.h"

namespace space::node_api {
namespace {

std::vector<std::string_view> values(const HttpHeaders& headers, std::string_view name) {
  std::vector<std::string_view> out;
  for (const auto& header : headers) {
    if (header.name == name) out.push_back(header.value);
  }
  return out;
}

Task<void> refuse(HttpExchange& exchange, std::string message) {
  const Json body(Json::Object{{"code", 400}, {"message", std::move(message)}});
  HttpHeaders headers{{"content-type", "application/json"}, {"cache-control", "no-store"}};
  static_cast<void>(co_await exchange.respond(400, std::move(headers), body.text()));
}

}  // namespace

Task<void> Front::handle(HttpExchange& exchange) {
  const auto& request = exchange.request();
  const auto hosts = values(request.headers, "host");
  const auto ids = values(request.headers, "e2b-sandbox-id");
  const auto ports = values(request.headers, "e2b-sandbox-port");
  auto target = wire::edge_target({hosts, ids, ports}, names_);
  if (!target) {
    co_await refuse(exchange, std::string(target.error()));
  } else if (target->sandbox) {
    co_await sandbox_.handle(exchange, *std::move(target));
  } else if (request.path.starts_with("/space/")) {
    co_await space_.handle(exchange);
  } else if (request.path != "/files") {
    co_await control_.handle(exchange);
  } else if (count_headers(request.headers, "x-access-token") > 0) {
    co_await sandbox_.handle_by_token(exchange);
  } else {
    // A signed URL among them: no token is tried (P-32).
    co_await refuse(exchange,
                    "/files belongs to a sandbox: name it by the headers E2b-Sandbox-Id and "
                    "E2b-Sandbox-Port, by a host name <port>-<id>.<domain>, or by X-Access-Token");
  }
}

}  // namespace space::node_api
