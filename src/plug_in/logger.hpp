#pragma once

namespace ccl::detail {

/// Function by which NCCL's plug-ins write lines to the log. `level`: see `PlugInLevel`; `parts`:
/// subsystems as bits.
using PlugInLogger = void (*)(int level, unsigned long parts, const char* file, int line,
                              const char* format, ...);
enum PlugInLevel : int {
  plug_in_none,
  plug_in_version,
  plug_in_warn,
  plug_in_info,
  plug_in_abort,
  plug_in_trace,
  plug_in_attn  // between WARN and INFO
};

/// The logger that ccl gives to plug-ins.
void log_of_plug_in(int level, unsigned long parts, const char* file, int line, const char* format,
                    ...) __attribute__((format(printf, 5, 6)));

}  // namespace ccl::detail
