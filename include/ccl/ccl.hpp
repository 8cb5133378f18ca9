#pragma once

// Everything that a host program needs. <ccl/ccl.cuh> adds device code.

#if __cplusplus < 202002L
#  error "ccl: this is C++20; compile with -std=c++20 or later, or link ccl::runtime by CMake"
#endif

#include <ccl/algo/bruck.hpp>
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/algo/copy_engine.hpp>
#include <ccl/algo/direct.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/halving.hpp>
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/nvls_tree.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/one_tree.hpp>
#include <ccl/algo/ordered_chain.hpp>
#include <ccl/algo/ordered_tree.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/any_collective.hpp>
#include <ccl/auto.hpp>
#include <ccl/checked.hpp>
#include <ccl/collective.hpp>
#include <ccl/collective/fused.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/registered_buffer.hpp>
#include <ccl/epilogue/add_rms_norm.hpp>
#include <ccl/epilogue/fp8_rows.hpp>
#include <ccl/epilogue/plain_rows.hpp>
#include <ccl/epilogue/store_rows.hpp>
#include <ccl/group.hpp>
#include <ccl/hooked.hpp>
#include <ccl/pipeline.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/sentinel.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/traced.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/collnet.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/nvls.hpp>
#include <ccl/transport/p2p.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>
