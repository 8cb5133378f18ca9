cmake_minimum_required(VERSION 3.25)
# Checks in PTX that each kernel waits for the previous launch before it ends, even if its body does
# nothing: cmake -Dnvcc= -Dsource= -Dinclude= -Dto= -P kernel_end.cmake
execute_process(COMMAND ${nvcc} -std=c++20 -arch=sm_90 -ptx -I${source}/include -I${include}
  ${source}/tests/detail/exec/kernel_end.cu -o ${to} COMMAND_ERROR_IS_FATAL ANY)
file(READ ${to} ptx)
string(REGEX MATCHALL "\\.entry|griddepcontrol\\.[a-z_]+|[ \t]ret;" found "${ptx}")
list(TRANSFORM found STRIP)
string(REPLACE ";;" ";" found "${found}")
set(one ".entry;griddepcontrol.launch_dependents;griddepcontrol.wait;ret")
string(REGEX REPLACE ";$" "" found "${found}")
if(NOT found STREQUAL "${one};${one};${one}")
  message(FATAL_ERROR "the kernels should each wait at their end, but they are: ${found}")
endif()
