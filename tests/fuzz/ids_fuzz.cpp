// Unique ids, addresses as text and as bytes, and lists of interfaces.
#include <ccl/comm/unique_id.hpp>

#include <algorithm>
#include <string>
#include <string_view>

#include "fuzz/fuzz.hpp"
#include "net/message_rules.hpp"
#include <arpa/inet.h>

namespace ccl::fuzz {

using namespace detail;
using namespace detail::net;

namespace {

/// Names are not looked up: a fuzz target must not send anything. "0." is a name.
bool is_numeric(std::string_view text) {
  if (text.starts_with("unix:")) return true;
  if (text.starts_with('['))
    return text.find_first_not_of("[]:.%0123456789abcdefABCDEF") == text.npos;
  in_addr v4{};
  return ::inet_pton(AF_INET, std::string{text.substr(0, text.rfind(':'))}.c_str(), &v4) == 1;
}

void read_text(std::string_view text) {
  if (const auto id = UniqueId::from_string(text)) {
    demand(id->to_string() == text, "an id is written otherwise than read");
  }
  const bool has_dot_or_colon = text.find_first_of(".[") != text.npos || text.starts_with("unix:");
  if (!has_dot_or_colon || !is_numeric(text)) return;
  const auto address = Address::parse(text);
  if (!address) return;
  const Address again{address->wire()};
  demand(again == *address, "an address is another one on the wire");
}

void read_bytes(Input input) {
  Source source{input};
  const auto wire = source.take<WireAddress>();
  const Address address{wire};
  (void)address.to_string();
  (void)address.loopback();
  (void)address.link_local();
  if (wrong_address(wire).empty()) {
    demand(address.bytes() > 0, "an address that fits is none");
    demand(Address{address.wire()} == address, "an address is another one on the wire");
  }
  UniqueId id;
  const Input bytes = source.take_bytes(id.bytes.size());
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  if (const auto content = unpack(id)) (void)pack(*content);
}

void read_names(std::string_view names) {
  const auto at = [](const char* text) { return Address::parse(text).value(); };
  const std::vector<Interface> all{{"lo", at("127.0.0.1:0")},
                                   {"ib0", at("10.0.0.1:0")},
                                   {"eth0", at("[fd00::1]:0"), false},
                                   {"docker0", at("172.17.0.1:0")}};
  for (const int family : {0, AF_INET, AF_INET6}) {
    demand(choose_interfaces(all, names, family).size() <= all.size(), "more than there are");
  }
}

}  // namespace

void prepare() {}
void read(Input input) {
  Source source{input};
  const auto what = source.take<std::uint8_t>();
  if (what % 3 == 0) read_text(text_of(source.rest()));
  if (what % 3 == 1) read_bytes(source.rest());
  if (what % 3 == 2) read_names(text_of(source.rest()));
}

std::vector<std::string> seeds() {
  IdContent content;
  content.root = Address::parse("10.1.2.3:4567").value().wire();
  const std::string text{'\0'}, bytes{'\1'}, names{'\2'};
  return {text + pack(content).to_string(),
          text + "10.0.0.1:80",
          text + "[fe80::1%1]:80",
          text + "unix:a name",
          bytes + fuzz::bytes_of(content.root, pack(content)),
          bytes + fuzz::bytes_of(Address::unix_name("name").wire()),
          names + "^=lo,docker0",
          names + "ib,eth"};
}

}  // namespace ccl::fuzz
