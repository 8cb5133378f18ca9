#pragma once

#include <ccl/transport/transport.hpp>
