#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace space::node_api {

// Takes the parameters of a query one by one; what is left over, given twice or wrong is an error.
class Query {
 public:
  Query() = default;
  // The pairs as wire::parse_query gives them.
  explicit Query(std::multimap<std::string, std::string> pairs) : pairs_(std::move(pairs)) {}

  std::optional<std::string> text(const std::string& name);
  // A path in the guest's file system; needed.
  std::string path();
  // Whose rights apply in the guest; empty when not given.
  std::string user();
  std::optional<std::uint64_t> number(const std::string& name, std::uint64_t max);
  bool flag(const std::string& name);
  // Permission bits in octal.
  std::optional<std::uint32_t> mode(const std::string& name);

  // Names a parameter whose value is not acceptable; an earlier error stays.
  void refuse(const std::string& name, const std::string& problem);
  // Null when all was well and no parameter is left over, else the first error.
  std::optional<std::string> error();

 private:
  std::multimap<std::string, std::string> pairs_;
  std::optional<std::string> error_;
};

}  // namespace space::node_api
