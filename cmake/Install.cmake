# cmake --install build --prefix DIR installs programs, scripts and presets as a relocatable tree. The tree has the layout
# and start scripts (train-singlenode.sh, train.sbatch) of the checkout, except that the programs are in bin/. Headers and
# a CMake package are not installed, because mpzero is not a library.
#
# The programs search for LibTorch in DIR/.venv, relative to the program, then in the build's environment. The file
# `installation` prevents the scripts from building in this tree, and contains the path of the build's environment.

cmake_path(RELATIVE_PATH MPZERO_TORCH_ROOT BASE_DIRECTORY "${MPZERO_VENV}" OUTPUT_VARIABLE torch_in_venv)
cmake_path(GET torch_in_venv PARENT_PATH site_in_venv)
set(rpath "")
foreach(venv "$ORIGIN/../.venv" "${MPZERO_VENV}")
  foreach(folder torch/lib nvidia/cu13/lib nvidia/nccl/lib)
    list(APPEND rpath "${venv}/${site_in_venv}/${folder}")
  endforeach()
endforeach()
# INSTALL_RPATH_USE_LINK_PATH adds the folders of system libraries that the loader does not search by default.
# The build uses the same path, because CMake would pad a different path with empty entries, which add the current folder
# to the search path.
set_target_properties(mpzero zero_to_fp32 PROPERTIES INSTALL_RPATH "${rpath}" INSTALL_RPATH_USE_LINK_PATH ON
  BUILD_WITH_INSTALL_RPATH ON)

# CMake's default prefix would mix the tree with system files.
install(CODE [[
  if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$")
    message(FATAL_ERROR "${CMAKE_INSTALL_PREFIX} would mix mpzero's tree with system files: "
      "pass cmake --install a separate folder, e.g. --prefix /opt/mpzero")
  endif()
]])
install(CODE [[
  if(NOT EXISTS "$<TARGET_FILE:mpzero>" OR NOT EXISTS "$<TARGET_FILE:zero_to_fp32>")
    message(FATAL_ERROR "$<TARGET_FILE:mpzero> and zero_to_fp32 are not built: build them first with "
      "./train-singlenode.sh --build-only")
  endif()
]])
install(TARGETS mpzero zero_to_fp32 RUNTIME DESTINATION bin)

install(DIRECTORY assets configs container docs sbatch scripts singlenode DESTINATION . USE_SOURCE_PERMISSIONS
  PATTERN __pycache__ EXCLUDE)
install(PROGRAMS app/check.py app/prepare_data.py app/report.py app/follow.py app/top.py app/generate.py app/failure.py DESTINATION app)
install(DIRECTORY app/run_failure app/run_files app/run_report app/run_follow app/run_top DESTINATION app PATTERN __pycache__ EXCLUDE)
install(FILES app/chat_template.py DESTINATION app)
install(DIRECTORY app/prepare DESTINATION app PATTERN __pycache__ EXCLUDE)
install(FILES train-singlenode.sh train.sbatch LICENSE README.md CONTRIBUTING.md pyproject.toml uv.lock DESTINATION .)
install(FILES bench/FAULTS.md bench/PLAN.md bench/README.md bench/RESULTS.md bench/ROOFLINE.md DESTINATION bench)  # pages that other documents link to
install(DIRECTORY DESTINATION logs)
file(WRITE "${CMAKE_BINARY_DIR}/installation" "${MPZERO_VENV}\n")
install(FILES "${CMAKE_BINARY_DIR}/installation" DESTINATION .)
install(CODE "
  message(STATUS \"mpzero: programs in \${CMAKE_INSTALL_PREFIX}/bin, start scripts in \${CMAKE_INSTALL_PREFIX}, presets in \"
    \"configs/, the sample text in assets/; headers and a CMake package are not installed, because mpzero is not a library\")
  message(STATUS \"mpzero: run the Python programs with ${MPZERO_VENV}/bin/python, e.g. \"
    \"${MPZERO_VENV}/bin/python \${CMAKE_INSTALL_PREFIX}/app/generate.py\")
")
