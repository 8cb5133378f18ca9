// expect: ccl: an element type must be trivially copyable (ranks exchange its bytes); reduce a plain struct of its data instead
#include <ccl/ccl.hpp>

#include <string>

using Use = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple, ccl::ShmTransport>;
ccl::Result<void> use(const Use& call, std::string* data) {
  return call(data, data, 10);
}
