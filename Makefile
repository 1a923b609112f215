# The commands of a checkout. `make demo` and `make check` do all the set-up on a fresh Debian 12.
#   make demo    shows Kiln at work: renders, compiles and runs attention on real input
#   make check   builds all and runs every short suite; the last line is the verdict
#   make quick   the part of it that takes seconds
#   make lint    format, rooms, limits, words and clang-tidy
#   make clean   removes the build directory; .deps/ stays
BUILD ?= build
JOBS ?= $(shell nproc)
MAKEFLAGS += --no-print-directory

.PHONY: all deps configure build demo quick check full lint format clean

all: build

deps:
	@tools/deps.sh

configure: deps
	@cmake -S . -B $(BUILD) $(CMAKE_ARGS) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

demo: build
	@BUILD=$(BUILD) tools/demo.sh

quick check full: build
	@BUILD=$(BUILD) tools/run_tests.sh $@

lint:
	@tools/deps.sh --lint
	@cmake -S . -B $(BUILD) $(CMAKE_ARGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target kiln_embedded
	@BUILD=$(BUILD) tools/run_tests.sh full rooms limits words format selftest tidy

format:
	@git ls-files '*.c' '*.h' ':!*.tmpl.c' | xargs clang-format -i

clean:
	rm -rf $(BUILD)
