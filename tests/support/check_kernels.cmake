# Compiles a file to PTX and counts its kernels and lines, on which the time to compile depends:
# cmake -Dnvcc= -Dsource= -Dinclude= -Dfile= -Dto= -Darchitecture= -Dkernels=MOST -Dlines=MOST
# -P check_kernels.cmake
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${nvcc} -std=c++20 -O3 -arch=sm_${architecture} -ptx -I${source}/include -I${include}
  ${source}/tests/${file} -o ${to} COMMAND_ERROR_IS_FATAL ANY)
file(READ ${to} ptx)
string(REPLACE ";" "" ptx "${ptx}")
string(REGEX MATCHALL "\\.entry" entries "${ptx}")
string(REGEX MATCHALL "\n" ends "${ptx}")
list(LENGTH entries count)
list(LENGTH ends length)
if(count EQUAL 0 OR count GREATER kernels OR length GREATER lines)
  message(FATAL_ERROR
    "${file} has ${count} kernels of ${length} lines, but at most ${kernels} of ${lines} are meant")
endif()
message(STATUS "${file}: ${count} kernels, ${length} lines of PTX")
