# The two libraries, each shared and static, from the objects that the rooms have collected.
set(kiln_parts $<TARGET_OBJECTS:kiln_runtime> $<TARGET_OBJECTS:kiln_full>)
set(kiln_rt_parts $<TARGET_OBJECTS:kiln_runtime> $<TARGET_OBJECTS:kiln_empty>)
set(kiln_libraries kiln::jansson kiln::sodium m ${CMAKE_DL_LIBS} Threads::Threads)

function(kiln_add_library name)
  cmake_parse_arguments(arg "" "" "PARTS;LIBRARIES" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY KILN_LIBRARIES ${name})
  add_library(${name}_shared SHARED ${arg_PARTS})
  add_library(${name}_static STATIC ${arg_PARTS})
  foreach(target ${name}_shared ${name}_static)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE C
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib
                          ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
    target_include_directories(${target} PUBLIC
                               $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endforeach()
  set_target_properties(${name}_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
  target_link_libraries(${name}_static PUBLIC ${arg_LIBRARIES})
  target_link_libraries(${name}_shared PRIVATE ${arg_LIBRARIES})
  # The archives' own symbols stay inside: a program may bring another Lua or jansson of its own.
  # --wrap: see runtime/no_stdin.c
  target_link_options(${name}_shared PRIVATE -Wl,--wrap=stdin -Wl,--exclude-libs,ALL
                      -Wl,--gc-sections -Wl,--as-needed
                      -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/kiln.map)
  set_property(TARGET ${name}_shared APPEND PROPERTY LINK_DEPENDS
               ${CMAKE_SOURCE_DIR}/cmake/kiln.map)
  if(NOT KILN_SANITIZE)
    target_link_options(${name}_shared PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

kiln_add_library(kiln PARTS ${kiln_parts} LIBRARIES kiln::lua ${kiln_libraries})
# Lua's archive is searched after Kiln's and needs lua_streams.c from there.
target_link_options(kiln_static INTERFACE -Wl,--undefined=kiln__lua_stdin)
get_target_property(kiln_empty_sources kiln_empty SOURCES)
if(kiln_empty_sources MATCHES "\\.c")
  kiln_add_library(kiln_rt PARTS ${kiln_rt_parts} LIBRARIES ${kiln_libraries})
endif()
