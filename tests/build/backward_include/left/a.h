#include "right/header_only.h"
