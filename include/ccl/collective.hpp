#pragma once

// All operations. A program that uses one may include its header of <ccl/collective/> alone.
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/collective/all_to_all_v.hpp>
#include <ccl/collective/broadcast.hpp>
#include <ccl/collective/gather.hpp>
#include <ccl/collective/reduce.hpp>
#include <ccl/collective/reduce_scatter.hpp>
#include <ccl/collective/scatter.hpp>
#include <ccl/collective/send_recv.hpp>
