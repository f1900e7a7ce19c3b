#include "adapters/runtime_oci/stage.h"

int main(int argc, char** argv) { return space::oci::stage_main(argc, argv); }
