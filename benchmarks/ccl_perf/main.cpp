#include <fmt/format.h>

#include <cstdio>

#include "conduct.hpp"
#include "launch.hpp"
#include "measure.hpp"
#include "rival.hpp"
#include <fcntl.h>
#include <unistd.h>

namespace {

/// Opens the standard streams that are closed. Otherwise a socket or a pipe would take the number
/// of such a stream and receive the output.
void open_streams() {
  int fd;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ccl::perf;
  open_streams();
  const Options options = parse_options(argc, argv);
  if (options.device == Device::cuda) return conduct(options);
  const bool meets_rival = rival::name() != nullptr && options.launch == Launch::environment;
  if (!options.compare.empty() && !meets_rival) {
    fmt::print(stderr,
               "ccl_perf: --compare mpi needs MPI and its ranks; run "
               "\"mpirun -n 2 ccl_perf_mpi ...\" without --ranks\n");
    return 2;
  }
  if (meets_rival) rival::start(&argc, &argv);
  const int status =
      launch(options, [&](const ccl::Communicator& comm) { return measure(comm, options); });
  if (meets_rival) rival::stop();
  return status;
}
