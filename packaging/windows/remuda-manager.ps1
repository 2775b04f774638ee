# Creates the service remuda-manager. Needs an administrator and nssm in the path.
$ErrorActionPreference = 'Stop'
$service = 'remuda-manager'
& nssm install $service 'C:\Program Files\Remuda\remuda.exe' 'manager run --config C:\ProgramData\Remuda\config.toml --data C:\ProgramData\Remuda\data'
& nssm set $service Start SERVICE_AUTO_START
& nssm set $service AppExit Default Restart
# After a drain or Ctrl-C the manager ends with 0 and stays down.
& nssm set $service AppExit 0 Exit
& nssm set $service AppRestartDelay 2000
# Sends Ctrl-C first, and waits up to a minute until the manager has ended.
& nssm set $service AppStopMethodConsole 60000
# The agent and its jobs outlive the manager.
& nssm set $service AppKillProcessTree 0
& nssm start $service
