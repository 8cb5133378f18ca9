// Variables that launchers set.
#include <ccl/comm/launcher.hpp>

#include "fuzz/fuzz.hpp"

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
}  // namespace

void prepare() {}
void read(Input input) {
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
  return {line(0, "1") + line(1, "4") + line(2, "1") + line(3, "job"),
          line(5, "0") + line(6, "2") + line(7, "0"), line(8, "3") + line(9, "4"),
          line(12, "0") + line(13, "8") + line(15, "77") + line(16, "0")};
}

}  // namespace ccl::fuzz
