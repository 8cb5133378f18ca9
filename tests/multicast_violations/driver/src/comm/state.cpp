void* create = dlsym(libcuda, "cuMulticastCreate");
