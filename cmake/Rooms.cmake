# One unity build per room (the files of a folder; of several with JOIN) with precompiled ATen headers. A full build
# takes less than half the time, but a change in one file recompiles its room.
option(MPZERO_JOIN_SOURCES "Compile the files of a room together, with precompiled headers" OFF)

# mpzero_add_room(SOURCES files... [CUDA files... NO_CUDA files...] [USES rooms...] [PUBLIC libraries...]
#                 [PRIVATE libraries...] [JOIN room] [OPTIMIZED]):
# Adds the files of one folder as a static library mpzero_<folder>, with _ for / in its name. CUDA: files for builds with
# GPU kernels. NO_CUDA: files for builds without GPU kernels. USES: all folders whose headers the files include; they must
# already be added, so the dependency graph stays acyclic. tests/structure compares USES with the #include lines. JOIN: a
# room that was added earlier; with MPZERO_JOIN_SOURCES, the files are compiled together with that room's. Not for rooms
# with CUDA files or set_source_files_properties(), which apply only to targets of the same folder. OPTIMIZED: the files
# contain performance-critical loops, so a release build compiles them with -O3 instead of -O1.
function(mpzero_add_room)
  cmake_parse_arguments(arg "OPTIMIZED" "JOIN" "SOURCES;CUDA;NO_CUDA;USES;PUBLIC;PRIVATE" ${ARGN})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." OUTPUT_VARIABLE folder)
  mpzero_room_target("${folder}" room)
  if(MPZERO_GPU_KERNELS)
    list(APPEND arg_SOURCES ${arg_CUDA})
    # Keep these files separate, so that a test can check which functions files without GPU kernels call.
    set_source_files_properties(${arg_CUDA} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  else()
    list(APPEND arg_SOURCES ${arg_NO_CUDA})
  endif()
  if(arg_JOIN AND arg_CUDA)
    message(FATAL_ERROR "${folder} has CUDA files, so it cannot JOIN ${arg_JOIN}: remove JOIN")
  endif()
  if(MPZERO_JOIN_SOURCES AND arg_JOIN)
    mpzero_room_target("${arg_JOIN}" joined)
    list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    target_sources(${joined} PRIVATE ${arg_SOURCES})
    add_library(${room} ALIAS ${joined})
    set(room ${joined})
  else()
    add_library(${room} STATIC ${arg_SOURCES})
  endif()
  mpzero_join_sources(${room})
  if(arg_OPTIMIZED)
    target_compile_options(${room} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O3>)
  endif()
  # base and io do not use ATen, and gcc rejects headers that were precompiled with different options.
  if(MPZERO_JOIN_SOURCES AND folder MATCHES "^(app|model|parallel)/")
    target_precompile_headers(${room} REUSE_FROM mpzero_precompiled)
    target_link_libraries(${room} PUBLIC mpzero_precompiled)
  endif()
  target_link_libraries(${room} PUBLIC mpzero_fmt ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  foreach(used ${arg_USES})
    mpzero_room_target("${used}" target)
    if(NOT TARGET ${target})
      message(FATAL_ERROR "${folder} uses ${used}, which must be added first: reorder the rooms")
    endif()
    get_target_property(aliased ${target} ALIASED_TARGET)
    if(NOT room STREQUAL target AND NOT room STREQUAL aliased)
      target_link_libraries(${room} PUBLIC ${target})
    endif()
  endforeach()
endfunction()

function(mpzero_join_sources room)
  set_target_properties(${room} PROPERTIES UNITY_BUILD ${MPZERO_JOIN_SOURCES} UNITY_BUILD_BATCH_SIZE 0)
  if(MPZERO_JOIN_SOURCES)
    # In a unity build, gcc treats the included source files as headers.
    target_compile_options(${room} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
  get_target_property(sources ${room} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(mpzero_room_target folder result)
  string(REPLACE "/" "_" name "mpzero_${folder}")
  set(${result} ${name} PARENT_SCOPE)
endfunction()

# mpzero_add_rooms(TARGET folders...): adds the subfolders in this order, and an interface library that links all of them.
function(mpzero_add_rooms target)
  add_library(${target} INTERFACE)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." OUTPUT_VARIABLE folder)
  foreach(name ${ARGN})
    add_subdirectory(${name})
    mpzero_room_target("${folder}/${name}" room)
    target_link_libraries(${target} INTERFACE ${room})
  endforeach()
endfunction()
