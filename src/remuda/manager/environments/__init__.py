"""Where jobs run. `port` is the interface; each other module is one kind of environment or a part of one."""
