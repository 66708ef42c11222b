# What the checks are, in one place; `.ci/run` calls the same targets with its own Python.
PYTHON ?= .venv/bin/python
PACKAGES = cli converters opsets
SOURCES = $(PACKAGES) oprep tests sample_models docs

.PHONY: check lint typecheck test golden clean

check: lint typecheck test

lint:
	$(PYTHON) -m ruff check $(SOURCES)
	$(PYTHON) -m ruff format --check $(SOURCES)

# mypy does not follow an editable install into renamed folders, but it follows links.
typecheck:
	rm -rf build/typing
	mkdir -p build/typing/oprep
	for name in $(PACKAGES); do ln -s ../../../$$name build/typing/oprep/$$name; done
	ln -s ../../../oprep/__init__.py ../../../oprep/__main__.py ../../../oprep/py.typed build/typing/oprep/
	MYPYPATH=build/typing $(PYTHON) -m mypy --strict build/typing/oprep

test:
	$(dir $(PYTHON))pytest -n auto

golden:
	$(dir $(PYTHON))pytest -q tests/cli tests/test_readme.py --refresh-golden

clean:
	rm -rf build dist oprep.egg-info
