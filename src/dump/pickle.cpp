#include "dump/pickle.hpp"

#include <nlohmann/json.hpp>

#include <bit>
#include <cstdint>

namespace ccl::detail {
namespace {

using Json = nlohmann::ordered_json;

// Opcodes and encodings: Lib/pickletools.py of CPython.
constexpr char empty_dict = '}', empty_list = ']', mark = '(', set_items = 'u', appends = 'e';
constexpr char none = 'N', unicode = 'X', long_1 = '\x8a', float_8 = 'G';
constexpr char true_value = '\x88', false_value = '\x89', stop = '.';
constexpr char head[] = {'\x80', 2};  // the protocol

class Pickler {
 public:
  std::string text{head, sizeof head};

  void value(const Json& from) {
    switch (from.type()) {
      case Json::value_t::object:
        return dict(from);
      case Json::value_t::array:
        return list(from);
      case Json::value_t::string:
        return string(from.get_ref<const std::string&>());
      case Json::value_t::boolean:
        return op(from.get<bool>() ? true_value : false_value);
      case Json::value_t::number_integer:
        return integer(std::uint64_t(from.get<std::int64_t>()), from.get<std::int64_t>() < 0);
      case Json::value_t::number_unsigned:
        return integer(from.get<std::uint64_t>(), false);
      case Json::value_t::number_float:
        return number(from.get<double>());
      default:
        return op(none);
    }
  }
  void op(char code) { text += code; }

 private:
  void little_endian(std::uint64_t bits, int bytes) {
    for (int b = 0; b < bytes; ++b) text += char(bits >> (8 * b) & 0xff);
  }
  void string(const std::string& from) {
    op(unicode);
    little_endian(from.size(), 4);
    text += from;
  }
  /// Nine bytes, so that the highest bit is only the sign.
  void integer(std::uint64_t bits, bool negative) {
    op(long_1);
    text += char(9);
    little_endian(bits, 8);
    text += negative ? '\xff' : '\0';
  }
  void number(double from) {
    op(float_8);
    const auto bits = std::bit_cast<std::uint64_t>(from);
    for (int b = 7; b >= 0; --b) text += char(bits >> (8 * b) & 0xff);  // big endian
  }
  void list(const Json& from) {
    op(empty_list);
    op(mark);
    for (const Json& one : from) value(one);
    op(appends);
  }
  void dict(const Json& from) {
    op(empty_dict);
    op(mark);
    for (const auto& [key, one] : from.items()) {
      string(key);
      value(one);
    }
    op(set_items);
  }
};

}  // namespace

std::string pickled(const nlohmann::ordered_json& value) {
  Pickler pickler;
  pickler.value(value);
  pickler.op(stop);
  return std::move(pickler.text);
}

}  // namespace ccl::detail
