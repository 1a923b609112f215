# The libraries that Kiln stands on, as static archives: users of libkiln need libc alone.
# Sets kiln::lua, kiln::jansson, kiln::sodium. docs/dependencies.md says why each is here.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(kiln_find_archive target module archive)
  pkg_check_modules(${module} ${module})
  find_library(${target}_ARCHIVE NAMES ${archive} HINTS ${${module}_LIBRARY_DIRS})
  if(NOT ${module}_FOUND OR NOT ${target}_ARCHIVE)
    message(FATAL_ERROR "${archive} is missing: run tools/deps.sh, then configure again.")
  endif()
  add_library(kiln::${target} STATIC IMPORTED GLOBAL)
  set_target_properties(kiln::${target} PROPERTIES IMPORTED_LOCATION ${${target}_ARCHIVE}
                        INTERFACE_INCLUDE_DIRECTORIES "${${module}_INCLUDE_DIRS}")
endfunction()

kiln_find_archive(lua lua5.4 liblua5.4.a)
kiln_find_archive(jansson jansson libjansson.a)
kiln_find_archive(sodium libsodium libsodium.a)

# Why the copy: see lua_streams.c.
set(lua_copy ${CMAKE_BINARY_DIR}/liblua5.4.a)
execute_process(COMMAND ${CMAKE_OBJCOPY} --redefine-sym stdin=kiln__lua_stdin
                        --redefine-sym stdout=kiln__lua_stdout
                        --redefine-sym stderr=kiln__lua_stderr ${lua_ARCHIVE} ${lua_copy}
                RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "objcopy could not copy ${lua_ARCHIVE}: run tools/deps.sh.")
endif()
set_property(TARGET kiln::lua PROPERTY IMPORTED_LOCATION ${lua_copy})

set_property(TARGET kiln::lua PROPERTY INTERFACE_LINK_LIBRARIES m ${CMAKE_DL_LIBS})
set_property(TARGET kiln::sodium PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads)
