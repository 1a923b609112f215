# Objects are compiled once and used by both libraries, static and shared:
#   kiln_runtime  runtime/*.c                        in libkiln and libkiln_rt
#   kiln_full     generator, compile, emulator, autotune  in libkiln alone
#   kiln_empty    runtime/rt/*.c: the empty service table  in libkiln_rt alone
foreach(part runtime full empty)
  add_library(kiln_${part} OBJECT ${CMAKE_SOURCE_DIR}/include/kiln/kiln.h)
  target_include_directories(kiln_${part} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_compile_definitions(kiln_${part} PRIVATE KILN_BUILDING)
endforeach()
target_link_libraries(kiln_runtime PRIVATE kiln::jansson kiln::sodium)
target_link_libraries(kiln_full PRIVATE kiln::lua kiln::jansson kiln::sodium)
target_link_libraries(kiln_empty PRIVATE kiln::jansson kiln::sodium)
target_sources(kiln_full PRIVATE ${CMAKE_SOURCE_DIR}/cmake/lua_streams.c)

# Every *.c of one folder joins a part. A new file is picked up by the next build.
function(kiln_add_room part folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
  target_sources(${part} PRIVATE ${sources})
endfunction()
