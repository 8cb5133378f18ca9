// Variables that launchers set, and values of PMIx.
#include <ccl/comm/launcher.hpp>
#include <ccl/comm/unique_id.hpp>

#include <cstdlib>

#include "bootstrap/launch/job_secret.hpp"
#include "bootstrap/launch/pmix.hpp"
#include "fuzz/fuzz.hpp"
#include "net/message_rules.hpp"

namespace ccl::fuzz {

namespace {
constexpr const char* names[] = {"RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "TORCHELASTIC_RUN_ID",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "PMI_RANK",
                                 "PMI_SIZE",
                                 "MPI_LOCALRANKID",
                                 "PMI_JOBID",
                                 "SLURM_PROCID",
                                 "SLURM_NTASKS",
                                 "SLURM_LOCALID",
                                 "SLURM_JOB_ID",
                                 "SLURM_STEP_ID"};
namespace pmix = detail::net::pmix;

/// A value as PMIx_Get gives it; null if the input says so.
pmix::Value* value_of(Source& source) {
  const auto type = source.take<std::uint8_t>();
  if (type == 0xff) return nullptr;
  auto* const value = static_cast<pmix::Value*>(std::calloc(1, sizeof(pmix::Value)));
  value->type = type;
  if (type != pmix::type_string) {
    value->number = source.take<std::uint32_t>();
  } else if (source.take<std::uint8_t>() != 0) {
    const std::string text{text_of(source.rest())};
    value->text = ::strdup(text.c_str());
  }
  return value;
}
void read_value(Source& source) {
  const auto what = source.take<std::uint8_t>() % 3;
  const int code = source.take<std::int8_t>();
  if (what == 0) {
    const auto ranks = detail::job_size_of(code, value_of(source));
    demand(!ranks || (*ranks >= 1 && *ranks <= detail::net::max_ranks), "a size that cannot be");
    return;
  }
  const auto text = detail::text_of(code, value_of(source));
  if (!text) return;
  demand(code == pmix::success, "a text in spite of a failure");
  if (what == 1) {
    (void)UniqueId::from_string(*text);
    return;
  }
  const auto id = detail::id_with_secret("127.0.0.1:4711", "job", *text, 1);
  demand(id.has_value() == (text->size() >= detail::min_secret_bytes), "a short secret");
}
}  // namespace

void prepare() {}
void read(Input input) {
  if (!input.empty() && input[0] == std::byte{0xff}) {
    Source source{input.subspan(1)};
    return read_value(source);
  }
  for (const char* name : names) ::unsetenv(name);
  std::string_view text = text_of(input);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    const std::string value{line.substr(1, line.find('\0') - 1)};
    ::setenv(names[std::uint8_t(line[0]) % std::size(names)], value.c_str(), 1);
  }
  const auto launch = detect_launch();
  if (!launch) return;
  demand(launch->rank >= 0 && launch->rank < launch->ranks, "a rank that cannot be");
}

std::vector<std::string> seeds() {
  const auto line = [](int name, const char* value) {
    return char(name) + std::string{value} + "\n";
  };
  const std::string id = unique_id_at("127.0.0.1:4711", "job").value().to_string();
  return {line(0, "1") + line(1, "4") + line(2, "1") + line(3, "job"),
          line(5, "0") + line(6, "2") + line(7, "0"),
          line(8, "3") + line(9, "4"),
          line(12, "0") + line(13, "8") + line(15, "77") + line(16, "0"),
          std::string{"\377\0\0\16\4\0\0\0", 8},
          std::string{"\377\1\0\3\1", 5} + id,
          std::string{"\377\2\0\3\1", 5} + "0123456789abcdef0123456789abcdef",
          std::string{"\377\2\0\3\0", 5},
          std::string{"\377\1\0\377", 4}};
}

}  // namespace ccl::fuzz
