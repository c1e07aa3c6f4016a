// A stand-in for a network plugin of NCCL: a structure that begins with the network's name.

extern "C" {

#ifdef NET_NAME
struct Net {
  const char* name;
  void* calls[16];
};
extern const Net ncclNetPlugin_v10;
const Net ncclNetPlugin_v10 = {NET_NAME, {}};
#else
int not_a_plugin() { return 0; }
#endif

}  // extern "C"
