#pragma once

#include <ccl/topo/graph.hpp>
