# mpzero_add_room(SOURCES files... [CUDA files... NO_CUDA files...] [USES rooms...] [PUBLIC libraries...] [PRIVATE libraries...]):
# the files of one folder as a static library, mpzero_<folder with _ for />. CUDA names those of a build with GPU kernels,
# NO_CUDA those of a build without. USES names the folders whose headers its files include, all of them;
# each must have been added before, so that rooms have no circular dependency. tests/structure compares USES with
# the #include lines.
function(mpzero_add_room)
  cmake_parse_arguments(arg "" "" "SOURCES;CUDA;NO_CUDA;USES;PUBLIC;PRIVATE" ${ARGN})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." OUTPUT_VARIABLE folder)
  mpzero_room_target("${folder}" room)
  if(MPZERO_GPU_KERNELS)
    list(APPEND arg_SOURCES ${arg_CUDA})
  else()
    list(APPEND arg_SOURCES ${arg_NO_CUDA})
  endif()
  add_library(${room} STATIC ${arg_SOURCES})
  target_link_libraries(${room} PUBLIC mpzero_fmt ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  foreach(used ${arg_USES})
    mpzero_room_target("${used}" target)
    if(NOT TARGET ${target})
      message(FATAL_ERROR "${folder} uses ${used}, which is not a room that was added before it")
    endif()
    target_link_libraries(${room} PUBLIC ${target})
  endforeach()
endfunction()

function(mpzero_room_target folder result)
  string(REPLACE "/" "_" name "mpzero_${folder}")
  set(${result} ${name} PARENT_SCOPE)
endfunction()

# mpzero_add_rooms(TARGET folders...): adds the sub-folders in this order, and an interface library of all of them.
function(mpzero_add_rooms target)
  add_library(${target} INTERFACE)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." OUTPUT_VARIABLE folder)
  foreach(name ${ARGN})
    add_subdirectory(${name})
    mpzero_room_target("${folder}/${name}" room)
    target_link_libraries(${target} INTERFACE ${room})
  endforeach()
endfunction()
