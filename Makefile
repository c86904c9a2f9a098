dev:
	tools/dev_build.sh
