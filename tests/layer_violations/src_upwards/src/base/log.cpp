#include "connect/wires.hpp"
