# Warnings, hardening and sanitizers for every target of ours (STYLE: warnings are errors).
set(SPACE_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
    -Wold-style-cast -Woverloaded-virtual -Wcast-qual -Wimplicit-fallthrough -Wnull-dereference -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND SPACE_WARNINGS -Wthread-safety)
  add_link_options(-fuse-ld=lld)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
add_compile_options(-D_GLIBCXX_ASSERTIONS -fstack-protector-strong -fcf-protection -ftrivial-auto-var-init=zero
                    "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")
if(SPACE_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
else()
  add_compile_options($<$<CONFIG:Release>:-D_FORTIFY_SOURCE=3>)
endif()
add_link_options(-Wl,-z,relro,-z,now)
