#pragma once

#include <ccl/types/word.hpp>

#include <atomic>
#include <thread>

#include "gpu/driver.hpp"

namespace ccl::test::played {

/// Lets streams write words and wait for words, in the call that queues them: what the stream has
/// before ends first.
inline void install_stream_words(int devices) {
  detail::CudaDriver driver = **detail::cuda_driver();
  driver.stream_batch_mem_op = [](CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops,
                                  unsigned) {
    (void)(*detail::cuda_driver())->stream_synchronize(stream);
    for (const CUstreamBatchMemOpParams* op = ops; op != ops + count; ++op) {
      const bool waits = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
      const auto at = waits ? op->waitValue.address : op->writeValue.address;
      const std::atomic_ref<Word> word{*reinterpret_cast<Word*>(at)};
      if (!waits) word.store(op->writeValue.value64);
      while (waits && word.load() != op->waitValue.value64) std::this_thread::yield();
    }
    return CUDA_SUCCESS;
  };
  detail::use_cuda_driver(driver, devices);
}

}  // namespace ccl::test::played
