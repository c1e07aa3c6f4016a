// A stand-in for a network plugin of NCCL: a structure that begins with the network's name, and, as in aws-ofi-nccl,
// the words with which it starts.

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

#ifdef PLUGIN_VERSION
const char* first_message() { return "NET/OFI Initializing aws-ofi-nccl " PLUGIN_VERSION; }
const char* last_message() { return "NET/OFI aws-ofi-nccl initialization failed"; }
#endif

}  // extern "C"
