// Values and lists of settings, and files of settings (NCCL_CONF_FILE).
#include <ccl/detail/runtime/settings.hpp>

#include "fuzz/fuzz.hpp"
#include "settings/files.hpp"
#include "settings/values.hpp"
#include "transport/p2p/path_table.hpp"

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr std::uint8_t whole_file = 0xff;

void read_file(std::string_view text) {
  for (const FileValue& one : lines_of(text, "a file")) {
    demand(one.variable.starts_with("NCCL_") || one.variable.starts_with("CCL_"), "its name");
    demand(one.variable.find('=') == one.variable.npos, "a name with a value");
    demand(one.value.find('\n') == one.value.npos, "a value of two lines");
    demand(text.find(one.value) != text.npos, "a value that is not in the file");
    (void)parse_integer(one.value);
  }
}
}  // namespace

void prepare() {}
void read(Input input) {
  Source source{input};
  const auto all = all_settings();
  const auto number = source.take<std::uint8_t>();
  if (number == whole_file) return read_file(text_of(source.rest()));
  const Setting& setting = all[number % all.size()];
  const std::string value{text_of(source.rest())};
  (void)parse_integer(value);
  (void)parse_bytes(value);
  if (const auto seconds = parse_seconds(value)) demand(*seconds >= 0, "seconds below 0");
  const bool good = fits(setting, value);
  if (!good) (void)valid_values(setting);
  if (value.find('\0') != value.npos) return;
  const std::string name = "CCL_" + std::string{setting.name};
  ::setenv(name.c_str(), value.c_str(), 1);
  (void)check_settings();
  (void)setting_text(setting.name);
  if (std::string_view{setting.name} == "P2P_EXCLUDE") {
    PeerInfo a, b;
    a.rank = 0;
    b.rank = 1;
    a.bus_id = 0x17000;
    (void)p2p_excludes(a, b);
  }
  ::unsetenv(name.c_str());
}

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  const auto all = all_settings();
  for (std::size_t n = 0; n < all.size(); ++n) {
    const std::string at(1, char(n));
    out.push_back(at + std::string{all[n].initial});
  }
  for (const char* value : {"0-1,0000:17:00.0-2", "=mlx5_0:1,^mlx5_1", "4M", "1.5", "ring,tree"}) {
    out.push_back(std::string(1, char(all.size() / 2)) + value);
  }
  out.push_back("\377NCCL_DEBUG=WARN\n# a comment\nCCL_ALGO=Ring\r\nNCCL_DEBUG=INFO\n=\nNCCL_X=");
  return out;
}

}  // namespace ccl::fuzz
