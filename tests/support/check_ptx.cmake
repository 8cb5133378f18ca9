# Compiles a file to PTX and checks what it has of `pattern`, in order. `expected` has words between
# spaces: cmake -Dnvcc= -Dsource= -Dinclude= -Dfile= -Dto= -Darchitecture=
# -Dpattern= -Dexpected= -P check_ptx.cmake
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${nvcc} -std=c++20 -O3 -Werror=cross-execution-space-call -arch=sm_${architecture} -ptx
  -I${source}/include -I${include}
  ${source}/tests/${file} -o ${to} COMMAND_ERROR_IS_FATAL ANY)
file(READ ${to} ptx)
string(REPLACE ";" " ; " ptx "${ptx}")
string(REGEX MATCHALL "${pattern}" found "${ptx}")
list(JOIN found " " found)
if(NOT found STREQUAL expected)
  message(FATAL_ERROR "${file} should have: ${expected}\nbut it has: ${found}")
endif()
