#include "services/node_api/json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>

namespace space::node_api {
namespace {

namespace bj = boost::json;

// Builds a Json from parser events. Open containers are kept on a stack; a closed one becomes a
// member of the one below it.
struct Builder {
  static constexpr std::size_t max_object_size = kMaxJsonBytes;
  static constexpr std::size_t max_array_size = kMaxJsonBytes;
  static constexpr std::size_t max_key_size = kMaxJsonBytes;
  static constexpr std::size_t max_string_size = kMaxJsonBytes;

  struct Open {
    Json container;
    std::string key;  // of the member being read
  };
  std::vector<Open> open;
  Json root;
  std::string pending;  // a key or string that comes in parts
  std::string problem;

  bool refuse(bj::error_code& ec, std::string what) {
    problem = std::move(what);
    ec = bj::error::exception;
    return false;
  }
  bool add(Json value) {
    if (open.empty()) {
      root = std::move(value);
      return true;
    }
    auto& top = open.back();
    if (auto* array = top.container.array()) {
      array->push_back(std::move(value));
    } else {
      top.container.object()->insert_or_assign(std::move(top.key), std::move(value));
      top.key.clear();
    }
    return true;
  }
  bool close() {
    auto closed = std::move(open.back().container);
    open.pop_back();
    return add(std::move(closed));
  }

  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_object_begin(bj::error_code&) {
    open.push_back(Open{Json(Json::Object{}), {}});
    return true;
  }
  bool on_object_end(std::size_t, bj::error_code&) { return close(); }
  bool on_array_begin(bj::error_code&) {
    open.push_back(Open{Json(Json::Array{}), {}});
    return true;
  }
  bool on_array_end(std::size_t, bj::error_code&) { return close(); }
  bool on_key_part(bj::string_view part, std::size_t, bj::error_code&) {
    pending.append(part.data(), part.size());
    return true;
  }
  bool on_key(bj::string_view part, std::size_t, bj::error_code& ec) {
    pending.append(part.data(), part.size());
    auto key = std::exchange(pending, {});
    if (open.back().container.object()->contains(key)) {
      return refuse(ec, "duplicate key " + Json(key).text());
    }
    open.back().key = std::move(key);
    return true;
  }
  bool on_string_part(bj::string_view part, std::size_t, bj::error_code&) {
    pending.append(part.data(), part.size());
    return true;
  }
  bool on_string(bj::string_view part, std::size_t, bj::error_code&) {
    pending.append(part.data(), part.size());
    return add(Json(std::exchange(pending, {})));
  }
  bool on_number_part(bj::string_view, bj::error_code&) { return true; }
  bool on_int64(std::int64_t value, bj::string_view, bj::error_code&) { return add(Json(value)); }
  bool on_uint64(std::uint64_t value, bj::string_view, bj::error_code&) { return add(Json(value)); }
  bool on_double(double, bj::string_view, bj::error_code& ec) {
    return refuse(ec, "a number that is no 64-bit integer");
  }
  bool on_bool(bool value, bj::error_code&) { return add(Json(value)); }
  bool on_null(bj::error_code&) { return add(Json(nullptr)); }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }
};

// Bytes of the UTF-8 character at the front of `text`; 0 when there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;  // over-long
  if (first == 0xed && byte(1) > 0x9f) return 0;  // surrogates
  if (first == 0xf0 && byte(1) < 0x90) return 0;  // over-long
  if (first == 0xf4 && byte(1) > 0x8f) return 0;  // above U+10FFFF
  return length;
}

void append_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const auto length = utf8_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 0xf];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += '"';
}

}  // namespace

Json::Json(std::uint64_t value) {
  if (std::in_range<std::int64_t>(value)) {
    value_ = static_cast<std::int64_t>(value);
  } else {
    value_ = value;
  }
}

void Json::append(std::string& out) const {
  if (const auto* b = boolean()) {
    out += *b ? "true" : "false";
  } else if (const auto* i = std::get_if<std::int64_t>(&value_)) {
    out += std::to_string(*i);
  } else if (const auto* u = std::get_if<std::uint64_t>(&value_)) {
    out += std::to_string(*u);
  } else if (const auto* s = string()) {
    append_string(out, *s);
  } else if (const auto* a = array()) {
    out += '[';
    for (const auto& item : *a) {
      if (&item != a->data()) out += ',';
      item.append(out);
    }
    out += ']';
  } else if (const auto* o = object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : *o) {
      if (!std::exchange(first, false)) out += ',';
      append_string(out, key);
      out += ':';
      value.append(out);
    }
    out += '}';
  } else {
    out += "null";
  }
}

std::string Json::text() const {
  std::string out;
  append(out);
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::expected<Json, std::string> parse_json(std::string_view text) {
  if (text.size() > kMaxJsonBytes) return std::unexpected("more than 1 MiB of JSON");
  bj::parse_options options;
  options.max_depth = kMaxJsonDepth;
  bj::basic_parser<Builder> parser(options);
  bj::error_code ec;
  const auto read = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && read < text.size()) ec = bj::error::extra_data;
  if (!ec) return std::move(parser.handler().root);
  auto problem = std::move(parser.handler().problem);
  if (problem.empty()) problem = ec.message();
  return std::unexpected(problem + " at byte " + std::to_string(read));
}

JsonFields::JsonFields(const Json& object) : fields_(object.object()) {
  if (fields_ == nullptr) error_ = "the body must be a JSON object";
}

const Json* JsonFields::raw(std::string_view name) {
  names_.push_back(name);
  if (fields_ == nullptr) return nullptr;
  const auto at = fields_->find(name);
  return at == fields_->end() ? nullptr : &at->second;
}

void JsonFields::refuse(std::string_view name, std::string_view problem) {
  if (!error_) error_ = "field \"" + std::string(name) + "\" " + std::string(problem);
}

std::string JsonFields::required_text(std::string_view name) {
  auto value = text(name);
  if (value.empty()) refuse(name, "is needed and must be a string that is not empty");
  return value;
}

std::string JsonFields::text(std::string_view name) {
  const auto* value = raw(name);
  if (value == nullptr || value->is_null()) return {};
  if (const auto* string = value->string()) return *string;
  refuse(name, "must be a string");
  return {};
}

bool JsonFields::flag(std::string_view name) {
  const auto* value = raw(name);
  if (value == nullptr || value->is_null()) return false;
  if (const auto* boolean = value->boolean()) return *boolean;
  refuse(name, "must be true or false");
  return false;
}

std::optional<std::uint64_t> JsonFields::number(std::string_view name, std::uint64_t min,
                                                std::uint64_t max) {
  const auto* value = raw(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  const auto number = value->integer<std::uint64_t>();
  if (!number || *number < min || *number > max) {
    refuse(name, "must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
    return std::nullopt;
  }
  return number;
}

std::map<std::string, std::string> JsonFields::text_map(std::string_view name) {
  std::map<std::string, std::string> out;
  const auto* value = raw(name);
  if (value == nullptr || value->is_null()) return out;
  const auto* object = value->object();
  if (object == nullptr) {
    refuse(name, "must be an object of strings");
    return out;
  }
  for (const auto& [key, item] : *object) {
    const auto* string = item.string();
    if (string == nullptr) {
      refuse(name, "must be an object of strings");
      return {};
    }
    out.emplace(key, *string);
  }
  return out;
}

std::vector<std::string> JsonFields::text_list(std::string_view name) {
  std::vector<std::string> out;
  const auto* value = raw(name);
  if (value == nullptr || value->is_null()) return out;
  const auto* array = value->array();
  if (array == nullptr) {
    refuse(name, "must be a list of strings");
    return out;
  }
  for (const auto& item : *array) {
    const auto* string = item.string();
    if (string == nullptr) {
      refuse(name, "must be a list of strings");
      return {};
    }
    out.push_back(*string);
  }
  return out;
}

const Json* JsonFields::object(std::string_view name) {
  const auto* value = raw(name);
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->object() != nullptr) return value;
  refuse(name, "must be an object");
  return nullptr;
}

const std::string* JsonFields::left_over() const {
  if (fields_ == nullptr) return nullptr;
  for (const auto& [key, value] : *fields_) {
    if (std::ranges::find(names_, key) == names_.end()) return &key;
  }
  return nullptr;
}

std::optional<std::string> JsonFields::error() const {
  if (error_) return error_;
  const auto* name = left_over();
  if (name == nullptr) return std::nullopt;
  return "unknown field " + Json(*name).text();
}

}  // namespace space::node_api
