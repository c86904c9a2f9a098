# Modules that run wherever glibc is at least as old as GRAPHOPT_GLIBC_STUBS says (tools/build_wheels.sh).
#
# The C++ library goes in, and the linker sees stubs of an old glibc (libc.so, libm.so, ... with the versions of its
# symbols only) instead of this machine's, so that each function is asked for by a version that the old one has.
set(GRAPHOPT_GLIBC_STUBS "" CACHE PATH "Folder of an old glibc's stub libraries (empty: this machine's glibc)")

function(graphopt_portable name)
  if(GRAPHOPT_GLIBC_STUBS)
    target_sources(${name} PRIVATE native/src/portable/glibc.cpp)
    target_link_directories(${name} BEFORE PRIVATE ${GRAPHOPT_GLIBC_STUBS})
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc LINKER:--exclude-libs,ALL)
    target_link_libraries(${name} PRIVATE -lpthread -ldl -lm -lld)
  endif()
endfunction()
