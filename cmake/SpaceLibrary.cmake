# The layer rule, checked by the build.
#
# space_library(<name> LAYER <base|core|ports|services|adapters|sim> SRCS ... [DEPS ...] [SYSTEM_DEPS ...])
#   - fails at configure time when a dependency points upward, or sideways between services and adapters;
#   - makes a module that links the whole archive with only its declared dependencies, so that an undeclared
#     dependency is a link error;
#   - for core, adds a test that fails when the archive refers to a clock, entropy, a file or a socket.
# space_test(<name> SRCS ... DEPS ...) makes a GoogleTest program; each TEST is one ctest.
set(SPACE_MAY_USE_base "base")
set(SPACE_MAY_USE_core "base;core")
set(SPACE_MAY_USE_ports "base;core;ports")
set(SPACE_MAY_USE_services "base;core;ports;services")
set(SPACE_MAY_USE_adapters "base;core;ports;adapters")
set(SPACE_MAY_USE_sim "base;core;ports;services;sim")

file(WRITE "${CMAKE_BINARY_DIR}/empty.cc" "")

function(space_library name)
  cmake_parse_arguments(A "" "LAYER" "SRCS;DEPS;SYSTEM_DEPS" ${ARGN})
  if(NOT DEFINED SPACE_MAY_USE_${A_LAYER})
    message(FATAL_ERROR "${name}: unknown layer '${A_LAYER}'")
  endif()
  add_library(${name} STATIC ${A_SRCS})
  set_target_properties(${name} PROPERTIES SPACE_LAYER ${A_LAYER})
  target_compile_options(${name} PRIVATE ${SPACE_WARNINGS})
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  if(A_LAYER STREQUAL "sim")
    target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  endif()
  foreach(dep IN LISTS A_DEPS)
    if(NOT TARGET ${dep})
      message(FATAL_ERROR "${name}: no library '${dep}' (declare it before its users)")
    endif()
    get_target_property(layer ${dep} SPACE_LAYER)
    if(layer AND NOT layer IN_LIST SPACE_MAY_USE_${A_LAYER})
      message(FATAL_ERROR "${name} (${A_LAYER}) must not depend on ${dep} (${layer})")
    endif()
  endforeach()
  target_link_libraries(${name} PUBLIC ${A_DEPS} ${A_SYSTEM_DEPS})
  if(NOT SPACE_SANITIZE)
    add_library(${name}_linktest MODULE "${CMAKE_BINARY_DIR}/empty.cc")
    target_link_libraries(${name}_linktest PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${name}>")
    target_link_options(${name}_linktest PRIVATE "-Wl,-z,defs")
    if(A_LAYER STREQUAL "core")
      add_test(NAME ${name}_is_pure
               COMMAND "${PROJECT_SOURCE_DIR}/cmake/check_pure.sh" "$<TARGET_FILE:${name}>")
    endif()
  endif()
endfunction()

include(GoogleTest)
function(space_test name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_compile_options(${name} PRIVATE ${SPACE_WARNINGS})
  target_compile_definitions(${name} PRIVATE SPACE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${A_DEPS} GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
endfunction()
